// Package web is what all HTTP routes of scrip share: who sends a request, whether that one may do it, the form of errors, and
// limits.
//
//	request ──> Gate ── key or credentials ──> access.Principal ──> operation and campaign allowed? ──> handler
//	              │ 401                                               │ 403                               │
//	              └───────────────────────────────────────────────────┴──> application/problem+json <─────┘ refusal
//
// A browser logs in by a key or a link, and shows a sealed cookie then ([LogIns]). The pages that it opens are made of requests within
// the process, as the principal of the cookie ([As]); the cookie opens nothing else.
//
// Requests without a key wait where their address has made too many ([HoldStrangers]); others never do.
//
// The table in kinds.go maps every refusal of the log, and every error of HTTP itself, to a status, a title, and what is known
// of the effect. Handlers return a [Problem] or write it.
//
// Owner: a Gate, LogIns and Sessions are used by the goroutines of all requests at once. A Problem belongs to one request.
//
// What a crash does: nothing here is stored. Clients in flight get no answer, and retry with the same Idempotency-Key.
package web
