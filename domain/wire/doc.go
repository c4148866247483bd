// Package wire defines the lines of the log: commands, events and outcomes, their fields and their bounds.
//
//	bytes ──ParseCommand──> Command ──AppendJSON──> bytes      (producers, service, lane)
//	bytes ──ParseEvent────> Event   ──AppendJSON──> bytes      (lane, scheduler, projections)
//	bytes ──ParseOutcome──> Outcome ──AppendJSON──> bytes      (lane, service, clients)
//
// Owner: everything here is a value or a pure function. A [LineCache] belongs to one goroutine. A crash loses nothing:
// nothing here outlives a call.
package wire
