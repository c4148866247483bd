// Package webhook delivers events of the log to HTTP endpoints of others, by the Standard Webhooks specification 1.0.0.
//
//	scrip webhook, HTTP ── Store ──> KV SCRIP_WEBHOOKS, a history that only grows (package registry); audit stream
//	                                        │ every server of role api folds it
//	                            lease webhook.<slot>: each endpoint has one server
//	                                        │
//	SCRIP_EVT_<lane> ── push.NewEvents ─┐   ├─ signed POST, checked address ──> endpoint
//	SCRIP_RMD_<lane> ── push.NewEvents ─┴───┘      2xx: done · 410: disabled · else: retried by the schedule, then a dead letter
//
// Package push gives what an endpoint needs: positions, retries with a breaker, Retry-After, a maximum age, dead letters. An
// endpoint is one audience of it, and a replay is a new one that starts at an earlier time.
//
// A request is the lines of one message of the log that pass the filter of the endpoint, at most Settings.Batch of them. The
// id of an event follows from its position in the log: it is the same at each try, by each server, and after a restore. It is the
// webhook-id of a request with one event. That of a batch is the digest of its events' ids: a retry may have fewer events, since
// package push retries only what is left, and divides by campaign what failed as a whole.
//
// URLs come from people, so addresses are checked when a connection is made, after the name was resolved: see Guard.
//
// Owner: Runner.Run owns its goroutines. The Store has none.
//
// What a crash does: another server gets the lease and continues at the position; a request whose answer was lost is made
// again under the same webhook-id. A change is stored or not; one that is stored may lack its entry in the audit stream, and
// has its author in the history.
package webhook
