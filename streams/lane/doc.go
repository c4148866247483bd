// Package lane is the one sequential consumer of a lane: it reads commands in order, decides them, writes the events as
// one event message per step, and publishes the outcomes when that is durable.
//
//	SCRIP_CMD_<lane> ──intake──> step (decoded, decided) ──publish with fence──> SCRIP_EVT_<lane>
//	                               │        ^                     │
//	                               │        └── collects more while the write before it is in flight
//	                               └── answers wait ──────────────┴── acknowledged ──> Scrip-Reply inboxes
//
// Owner: [Lane.Run] is the only goroutine that touches the state. A process runs a lane because it holds the lease, but a
// lease is a hint: the fence makes a second owner harmless. Every event message carries the sequence it expects to follow, so
// of two owners only one can write; the publish of the other is rejected, and it drops its decisions without answering.
//
// The event log records where a lane continues: each event message carries the commands it covers. So after a crash
//
//   - before the publish: nothing happened; the commands are read and decided again;
//   - after the publish, before the answer: the event log covers the commands; a retry with the same id gets the same
//     answer from the state;
//   - in the middle of a snapshot: the previous one is used and the log replayed from there.
//
// What the loop does with an error:
//
//	eventlog.ErrConflict     the fence rejected the write: the stream is read, for another owner's message or for our own
//	eventlog.ErrUnknown      no acknowledgement in time: the stream is read, and the same bytes are published again if it has not changed
//	eventlog.ErrNotDurable   nothing was stored, as on a full disk: likewise, and the state is full until a write is acknowledged
//	eventlog.ErrTooLarge     the server takes no message of this size: ErrStopped
//	errLost                  another owner writes: the state is dropped and loaded again, if the lane is still this process's
//	errDoubtful              an ErrStopped seen while deciding: the lane is loaded again, and stops the third time in a minute
//	ErrStopped               commands and events contradict each other: Run returns it, for an operator
//	natsx.Transient          NATS does not answer: the lane is loaded again after half a second
//	any other                Run returns it
package lane
