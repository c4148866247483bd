// Package console is the pages at `/`: what operators, support and marketing see of scrip, and do with a mouse.
//
//	browser ── cookie ──> session ──> page ── GET /v1/… as the session's principal ──> the handler of package api
//	   ^                               │                                                 role, scope, masks, audit
//	   │                               └─ html/template <── JSON ──────────────────────────┘
//	   ├── POST /acts/{act} ──> act ── POST, PATCH, DELETE /v1/… ──> the same
//	   └── /live/{page} <── the part "live" of a page, rendered once a second for all its viewers
//
// It is the fourth door to what HTTP, NATS and the command line share, and has no way of its own to the data: a page is
// made of requests to /v1 within the process. So the server refuses by role whatever a page shows, masked codes stay
// masked, what is recorded over HTTP is recorded here, and the curl line beside an act is the request that it makes.
//
// A screen is a row of pages and a template of its name, what people do is a row of acts. The form of an act is made of the
// schema that the document of /v1 has. All works without script, but for live updates, charts and the local time zone.
//
// Owner: a Console is used by the goroutines of all requests; each part that is watched has one goroutine while it has
// viewers.
//
// What a crash does: nothing here is stored. A session is a sealed cookie, which works at each server of the log. A form has
// the Idempotency-Key of its act: posted again after a crash, it has no second effect.
package console
