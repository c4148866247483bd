// Package command is the way of a command to its lane, for the micro service, HTTP and the SDK: it finds the lane, sends the lines of
// many callers in few messages, and assigns each outcome to its caller. [Lanes] is all of it.
//
//	caller ─line─┐                     one message, ≤ 1,000 lines
//	caller ─line─┼─> open batch ──────> scrip.lane.<lane>.cmd ──> PubAck      "ordered and stored", or: nothing stored
//	caller ─line─┘   of the lane             Scrip-Reply: <inbox>.<token>
//	     ^                                              │
//	     └───────── one outcome line each <─────────────┘ outcomes, in the order of the lines
//
// Batches form without a timer: while few lines of a lane are in flight a line is sent at once. Lines that are added while
// others are in flight collect in the open batch. It is sent when it has twice as many lines as are in flight, when it is
// full, or when the last outcome has arrived. Lines whose outcome is lost hold up those after them for Options.RetryAfter
// at most. What the SDK sends to the micro service uses the same path, with one line per request.
//
// Owner: each lane's route has one mutex; the goroutine that adds a line or reads an answer also sends what has become
// sendable, one sender at a time, so that lines are sent in the order they were added. Run owns the inbox and retries.
//
// What a failure does: a line ends in exactly one of four ways. An outcome from the lane. The refusal not_durable, only
// when every attempt got an error of JetStream or no responders until the deadline (a full disk, for example), which means
// that nothing was stored. A [NotSentError], when no attempt that could have an effect was sent. Or an [UnknownError]: it
// was sent and no answer came in time; a retry with the same id resolves it. Until then the same lines are sent again
// under the same ids, with growing pauses and at once after a reconnect. The lane deduplicates, so an outcome that arrives
// twice, late or for another attempt is the same outcome.
//
// Memory is bounded by MaxPending per lane: beyond it Send waits, or returns ErrFull for Call.NoWait.
package command
