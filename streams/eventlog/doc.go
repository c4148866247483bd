// Package eventlog reads and writes the streams that have one writer: a lane's events and its fired reminders.
//
//	Appender ── publish, Nats-Expected-Last-Sequence ──> SCRIP_EVT_<lane> ──> Reader ──> scheduler, fan-out, projector
//	    │  answer lost?                                        │
//	    └─ Resolve: landed · unchanged · lost                  └─ Verify, LastValid: where was I, and is that still there?
//
// Owner: an Appender belongs to the one goroutine that owns the lane; a Reader and a Feed to the goroutine that reads.
//
// A place in the log is (log UUID, sequence, digest of that message), never the number alone: a restore, or a tail lost
// to a power cut, gives old numbers to other messages. Whoever recorded a place verifies it before going on from it,
// and a Feed verifies its own after every interruption.
//
// What a crash does: nothing is kept here. A publish whose answer did not come either landed or did not; the fence makes
// sure that it happens at most once, and Resolve finds out which.
package eventlog
