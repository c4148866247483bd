// Package eventlog reads and writes the streams that have one writer: a lane's events and its fired reminders.
//
//	Appender ── publish, Nats-Expected-Last-Sequence ──> SCRIP_EVT_<lane> ──> Reader ──> scheduler, fan-out, projector
//	    │  answer lost?                                        │
//	    └─ Resolve: landed · unchanged · lost                  └─ Verify: is a recorded position still valid?
//
// Owner: an Appender belongs to the one goroutine that owns the lane; a Reader and a Feed to the goroutine that reads.
//
// A Judge decides, for every reader in the same way, which messages count: those with a valid seal (package seal). Others are
// foreign: ignored and reported. A sealed message that this program does not understand stops the reader, until an operator
// adds it to the skip list (scrip serve --skip-message; SkipKey). A reader without the code key accepts everything that has
// the form of a seal.
//
// A position in the log is (log UUID, sequence, digest of that message), never the sequence alone: after a restore, or a tail
// lost to a power cut, old sequences get other messages. A reader verifies a recorded position before it continues from it,
// and a Feed verifies its own after every interruption.
//
// What a crash does: no state is kept here. A publish without an answer was stored or not; the fence ensures at most once,
// and Resolve finds out which.
package eventlog
