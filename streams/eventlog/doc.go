// Package eventlog reads and writes the streams that have one writer: a lane's events and its fired reminders.
//
//	Appender ── publish, Nats-Expected-Last-Sequence ──> SCRIP_EVT_<lane> ──> Reader ──> scheduler, fan-out, projector
//	    │  answer lost?                                        │
//	    └─ Resolve: landed · unchanged · lost                  └─ Verify, LastValid: where was I, and is that still there?
//
// Owner: an Appender belongs to the one goroutine that owns the lane; a Reader and a Feed to the goroutine that reads.
//
// Which messages count, a Judge decides, for every reader in the same way: those with a valid seal (package seal), and on a
// log from before there were seals those that follow each other, up to the first sealed one. The rest is foreign: passed over
// and reported. A message of ours that this program does not understand stops the reader, until an operator has all readers
// pass over it (scrip serve --skip-message; SkipKey).
//
//	format 1, unsealed ── 1 ── 2 ── 3 ── 4 ──┐ the first owner of a version with seals
//	format 2, sealed                         └── 5 (no lines, Scrip-Sealed-From: 5) ── 6 (Scrip-Sealed-From: 5) ── …
//
// A log that is new begins with format 2. A reader without the code key takes what looks like a seal for one.
//
// A place in the log is (log UUID, sequence, digest of that message), never the number alone: a restore, or a tail lost
// to a power cut, gives old numbers to other messages. Whoever recorded a place verifies it before going on from it,
// and a Feed verifies its own after every interruption.
//
// What a crash does: nothing is kept here. A publish whose answer did not come either landed or did not; the fence makes
// sure that it happens at most once, and Resolve finds out which.
package eventlog
