// Package coalesce puts the command lines of many callers into few messages and hands each caller its own outcome.
//
//	caller ─line─┐                     one message, ≤ 1,000 lines
//	caller ─line─┼─> open batch ──────> scrip.lane.<lane>.cmd ──> PubAck      "ordered and kept", or: nothing stored
//	caller ─line─┘   of the lane             Scrip-Reply: <inbox>.<token>
//	     ^                                              │
//	     └───────── one outcome line each <─────────────┘ outcomes, in the order of the lines
//
// Batching is natural: while few lines of a lane are under way a line leaves at once, so a lonely call waits for nobody;
// the lines that come while others are under way gather, and leave together when they are twice as many, fill a message,
// or the last outcome has come back. No timer adds waiting. Code commands, which the micro service routes, take the same
// way with one line per request.
//
// Owner: each lane's route has one mutex; whoever adds a line or brings an answer also sends what has become sendable,
// one sender at a time, so that lines leave in the order they came. Run owns the inbox and asks again.
//
// What a failure does: a line has exactly one of four ends. An outcome from the lane. The refusal not_durable, only when
// every attempt was answered by an error of JetStream, or found nobody there until the deadline (a full disk), which
// means that nothing was stored. A [NotSentError], when nothing that could have had an effect ever left. Or an [UnknownError]: it was sent and no answer came in time; asking
// again with the same id tells. Until then the same lines are sent again under the same ids, with growing pauses and at
// once after a reconnect; the lane answers repeats, so an outcome that arrives twice, late or for another attempt is the
// same outcome.
//
// Memory is bounded by Options.MaxPending per lane: beyond it callers wait or are told so.
package coalesce
