// Package domain is what scrip decides, without a disk, a clock or a goroutine.
//
//	command line ──ParseCommand──> Command ──┐
//	                                         v
//	                              Lane.Decide(cmd, time) ──> Outcome   (the answer)
//	                                         │
//	                                         ├──> Event, Event, …       (what is written)
//	                                         v
//	event line ──ParseEvent──> Event ──> Lane.Apply                    (what is remembered; Lane.Fold does both)
//
// A Lane holds every campaign that lives on one partition of the log. Decide looks at the state and the given time,
// makes events and applies them at once, so the next command of the same step sees them. Apply is also what a restart
// runs over the event log: there is one way for state to change, and it starts from an event.
//
// Owner: exactly one goroutine owns a Lane; nothing here locks. A crash loses nothing that matters: state is a fold of
// the event log, and what was decided but not yet written was never answered.
//
// Everything speaks in [Instant] (microseconds since 1970 UTC); the caller gives the time of a command, which is the
// timestamp the log gave it, never running backwards.
package domain
