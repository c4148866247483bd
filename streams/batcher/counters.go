package batcher

import "sync/atomic"

// Counters of a batcher since it was made.
type Counters struct {
	Lines      uint64 // lines added
	Messages   uint64 // messages sent, retries included
	Answers    uint64 // lines answered by an outcome, not_durable included
	Failed     uint64 // lines that ended in an UnknownError or NotSentError
	Retries    uint64 // lines sent again under the same id
	NotDurable uint64 // lines refused because JetStream stored nothing
	Late       uint64 // outcome messages whose lines had an answer already or were given up
	Mismatched uint64 // outcome messages that do not fit their command message; dropped
}

type counters struct {
	lines, messages, answers, failed, retries, notDurable, late, mismatched atomic.Uint64
}

// Counters returns the counters as they are now.
func (c *Batcher) Counters() Counters {
	n := &c.counters
	return Counters{
		Lines: n.lines.Load(), Messages: n.messages.Load(), Answers: n.answers.Load(), Failed: n.failed.Load(),
		Retries: n.retries.Load(), NotDurable: n.notDurable.Load(), Late: n.late.Load(), Mismatched: n.mismatched.Load(),
	}
}
