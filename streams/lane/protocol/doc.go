// Package protocol is what the owner of a lane does, without the world it does it in: no connection, no goroutine, no
// timer. Somebody tells it what happened, and it says what has to be written and what may be answered.
//
//	snapshot ──Restore──┐                      ┌──Publish──> Write ──> SCRIP_EVT_<lane>, behind its fence
//	events ─────Fold────┼──> Owner ────────────┤
//	commands ──Decide───┘      ^               └──Acked────> the answers of that write, which may leave now
//	                           └── Acked, Resolved: what became of the write
//
// Package lane drives it with a real connection, package sim with a simulated one that loses, delays and doubles. That
// is why it exists: the order in which a lane reads, writes and answers is in one place, and can be tried in millions
// of orders of events that no test with real servers would meet.
//
// Owner: one goroutine. Nothing here survives a crash, and nothing has to: a new [Owner] is folded from the log.
package protocol
