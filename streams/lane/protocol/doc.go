// Package protocol is the logic of a lane's owner without I/O: no connection, no goroutine, no timer. Its caller passes in
// what was read or acknowledged, and gets the writes to publish and the replies to send.
//
//	snapshot ──Restore──┐                      ┌──NextWrite──> Write ──> SCRIP_EVT_<lane>, with its fence
//	events ─────Fold────┼──> Term ─────────────┤
//	commands ──Decide───┘      ^               └──Acked──────> the replies of that write, to be sent now
//	                           └── Acked, Abandon: the result of the write
//
// Package lane runs it with a real connection, package sim with a simulated one that loses, delays and duplicates. That is
// its purpose: the order in which a lane reads, writes and answers is in one place, and can be tested in millions of
// interleavings that no test with real servers would meet.
//
// Owner: one goroutine. Nothing here survives a crash: a new [Term] is folded from the log.
package protocol
