// Package domain holds the rules of scrip. It has no I/O, no clock and no goroutine.
//
//	command line ──wire──> Command ──┐
//	                                 v
//	                      Lane.Decide(command, time) ──> Outcome   (the answer)
//	                                 │
//	                                 ├──> Event, Event, …          (to be written to the log)
//	                                 v
//	event line ──wire──> Event ──> Lane.Apply                      (the state; Lane.Fold does both)
//
// A [Lane] holds every campaign of one partition of the log. Decide reads the state and the given time, makes events and
// applies them at once, so the next command of the same step sees them. A restart applies the events of the log: state
// changes by events only.
//
// The files, in an order in which each uses only those before it (but that a Lane lends its steps their memory):
//
//	state     record, imported, expiries, campaign, campaign_index, lane, names
//	events    apply, fold
//	commands  decision, decide_coupon, decide_campaign, decide_time; query
//	messages  cost, tally, step
//	snapshot  snapshot_codec, snapshot_reminders, snapshot, snapshot_read
//
// Below it are package wire (lines and their fields), package reminder (pending reminders), package table (pages and the
// hash index) and package code (coupon codes).
//
// Owner: exactly one goroutine owns a Lane; nothing here locks. A crash loses nothing that was answered: state is a fold of
// the event log, and an outcome is sent only after its events are stored.
//
// Times are a [wire.Instant] (microseconds since 1970 UTC). The time of a command is the timestamp that its stream gave it;
// it never runs backwards.
package domain
