// Package push hands fired reminders to whatever tells customers of them. It is the part of the Go SDK that a message
// centre is built on:
//
//	p, err := push.New(js, push.Options{Name: "mobile", Workers: 8})
//	err = p.Run(ctx, func(ctx context.Context, batch []push.Reminder) error {
//		return gateway.Send(ctx, batch) // up to 500 customers; nil = all of them were told
//	})
//
// Each lane's stream of fired reminders has one durable consumer of that name, shared by every process that runs under
// it: start more of them to send faster, stop them as you like. Another name is another audience, which gets everything,
// too.
//
//	SCRIP_RMD_0 ─┐                     ┌─ worker ─ function ─ ack
//	SCRIP_RMD_1 ─┼── pull, one message ┼─ worker ─ function ─ failed: back to NATS, later to anybody
//	SCRIP_RMD_2 ─┘   at a time         └─ worker ─ function ─ failed for some: kept here, only those again
//	                                                  └── after N tries ──> SCRIP_PUSH_DEAD, then ack
//
// What holds:
//
//   - A message is acknowledged when the function has returned nil for all its customers, or what it failed for is kept as
//     a dead letter. Nothing is dropped; no customer is handed over twice while nothing fails.
//   - At least once, not exactly once: between the push and the acknowledgement anything can die. [Reminder.Key] is the same
//     each time; give it to the gateway so that it knows what it has sent.
//   - A function that fails is tried again after a growing pause, N times, then the reminders it failed for become one
//     dead letter in the stream [DeadStream] and the rest goes on. [Letters] lists them, [Retry] tries them again.
//   - What counts as a try is a call that failed in this process. A message that was given back at a clean stop, or came
//     again after a crash, has not failed by that. Each process knows its own failures, so a message that goes from one to
//     another is tried more often than N times, but not delivered more often than 2N times: then it is a dead letter, too,
//     also if nobody has ever come to an end with it, because it may be what kills whoever takes it up.
//   - A function that hangs has its context cancelled after [Options].Timeout and the try counts as failed, whether it
//     returns or not. A function that panics has failed.
//   - No order is promised, between customers or between messages.
//
// Where a crash of the process leaves what:
//
//	before the push           the message; another process gets it after AckWait
//	between push and ack      the same: those customers are handed over again, under the same keys
//	some of them were told    the same: who was told is known to the process alone
//	between dead letter, ack  the dead letter; whoever gets the message finds it there and acknowledges
//
// Backups hold neither a name's place nor dead letters. On a restored log each name is a new one: begin it with
// [From] the time of the backup, and rely on the keys.
//
// Owner: Run owns its goroutines and has ended them all when it returns, except calls of a function that does not return.
//
// The package needs nats.go and a few small libraries, no server and no database.
package push
