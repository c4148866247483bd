// Package push passes fired reminders to a function that delivers them to customers. It is the part of the Go SDK that a
// sender is built on:
//
//	p, err := push.New(js, push.Options{Name: "mobile", Workers: 8})
//	err = p.Run(ctx, func(ctx context.Context, batch []push.Reminder) error {
//		return gateway.Send(ctx, batch) // up to 500 customers; nil = all of them were delivered
//	})
//
// Each lane's stream of fired reminders has one durable consumer of that name, shared by every process that runs under
// it: start more of them to send faster, stop them at any time. Another name is another audience, which gets every
// reminder, too.
//
//	SCRIP_RMD_0 ─┐                     ┌─ worker ─ function ─ ack
//	SCRIP_RMD_1 ─┼── pull, one message ┼─ worker ─ function ─ failed: back to NATS, later to any process
//	SCRIP_RMD_2 ─┘   at a time         └─ worker ─ function ─ failed for some: kept here, only those again
//	                                                  └── after N tries ──> SCRIP_PUSH_DEAD, then ack
//
// Guarantees:
//
//   - A message is acknowledged when the function has returned nil for all its customers, or the reminders that failed are
//     stored as a dead letter. Nothing is dropped; while nothing fails no reminder is delivered twice.
//   - At least once, not exactly once: a process can die between the push and the acknowledgement. [Reminder.Key] is the
//     same each time; pass it to the gateway as its idempotency key.
//   - A function that fails is retried after a growing pause, N times. Then the reminders it failed for become one dead
//     letter in the stream [DeadStream] and later messages continue. [Letters] lists them, [Retry] retries them.
//   - A try is a call that failed in this process. A message that was returned at a clean stop, or was delivered again
//     after a crash, has not failed by that. Each process counts its own failures, so a message that several processes
//     handle is tried more often than N times. After 2N deliveries it becomes a dead letter in any case, even if no process
//     has finished it: it may crash every process that handles it.
//   - A function that hangs has its context cancelled after [Options].Timeout and the try counts as failed, whether it
//     returns or not. A function that panics has failed.
//   - No order is guaranteed, between customers or between messages.
//
// What a crash of the process leaves:
//
//	before the push           the message; another process gets it after AckWait
//	between push and ack      the same: those customers are pushed again, under the same keys
//	some were delivered       the same: only the crashed process knew which
//	between dead letter, ack  the dead letter; the next process that gets the message finds it and acknowledges
//
// Backups hold neither a name's position nor dead letters. On a restored log each name is a new one: start it with
// [From] the time of the backup, and rely on the keys.
//
// Owner: Run owns its goroutines and has ended them all when it returns, except calls of a function that does not return.
//
// The package needs nats.go and a few small libraries, no server and no database.
package push
