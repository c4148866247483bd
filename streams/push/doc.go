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
//	SCRIP_RMD_0 ─┐ in order         ┌─ a call is free ────────────────────────────> function ── delivered ── ack
//	SCRIP_RMD_1 ─┼── one message ───┤                                    ┌── gate ──┘  │
//	SCRIP_RMD_2 ─┘   a lane         └─ none is: SCRIP_PUSH_WAIT, by ─────┤             ├─ failed: SCRIP_PUSH_WAIT, later
//	                                   priority: 8 high, 3 normal, 1 low ┘             └─ failed N times: SCRIP_PUSH_DEAD
//
// SCRIP_PUSH_OUT is read like one more lane: what package hold held back for a person and let out. The reminders that it holds back are
// in the lanes, too, and marked; they are not taken from there.
//
// An entry of SCRIP_PUSH_WAIT names a message of the log and the lines that are left; it has no customers in it. So a sender
// reads on while calls are busy, and finds what is more urgent; what failed waits there and holds nothing up.
//
// Guarantees:
//
//   - A message is acknowledged when the function has returned nil for all its customers, or those that are left are stored
//     as an entry or a dead letter. Nothing is dropped; while nothing fails no reminder is delivered twice.
//   - At least once, not exactly once: a process can die between the push and the acknowledgement. [Reminder.Key] is the
//     same each time; pass it to the gateway as its idempotency key.
//   - What fails is retried after a growing pause. After N failed tries it becomes a dead letter in the stream [DeadStream].
//     [Letters] lists them, [Retry] retries them. A failed try is a call that the gateway refused ([Refused], [Partial]), or
//     that failed while calls for others succeeded. A stop, a restart or a crash is none.
//   - While the gateway is away ([Away], or all calls fail) nothing counts as a failed try: one probe at a time is made, after
//     a pause that doubles, or the Retry-After of the gateway. What waits longer than MaxAge becomes a dead letter.
//   - A campaign whose calls only fail is set aside, and delays no other.
//   - A message of a campaign with high priority goes before a backlog of lower ones, on the same lane too, and between the
//     calls for a long list.
//   - A gateway that answers more slowly than usual, or fails, gets fewer calls at once, down to one.
//   - A message that was delivered by NATS 2N times without an end, since it may crash every process that handles it, has its
//     dead letter written before its next try, and removed after it.
//   - A function that hangs has its context cancelled after [Options].Timeout and the call has failed, whether it returns or
//     not. A function that panics has failed.
//   - A consumer that is lost is made again where the name was: positions are also in the bucket [Bucket]. Since counts for a
//     name that was never used.
//   - No order is guaranteed, between customers or between messages.
//
// What a crash of the process leaves:
//
//	before the push           the message or its entry; another process gets it after AckWait
//	between push and ack      the same: those customers are pushed again, under the same keys
//	between entry and ack     both: the same
//	between dead letter, ack  the dead letter; the next process that gets the message finds it and acknowledges
//	at any time               up to five seconds of its counts are not in [Positions]
//
// A connection that logged in with a key of role sender requests the same from the service ([Proxy]), which makes the consumers and
// lets it do what is its name's alone.
//
// The parts, with what goes in and what comes out:
//
//	source    backend: JetStream, or the service      place     ──> delivery ──> work, with its items   backend, source, pull
//	try       calls, one batch after the other        items     ──> result                              call
//	breaker   who may call now, and how many          class     ──> turn                                gate, pace
//	after     delivered, another try, dead letter     result    ──> acknowledgement, entry, letter      work, waiting, dead
//
// Backups hold positions, waiting messages and dead letters. On a restored log a name continues where it was when its
// position was copied: what was delivered after that is delivered again, under the same keys. If the bucket was not restored with
// the log, and names a message that the log does not have, the name continues with what fired after the time of that message.
//
// Owner: Run owns its goroutines and has ended them all when it returns, except calls of a function that does not return.
//
// The package needs nats.go and a few small libraries, no server and no database.
package push
