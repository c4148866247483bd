package scheduler

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain"
)

// askTimeout bounds one publish of asks, which goes on beside folding; no other asks leave meanwhile. What was not
// published is still due and asked again.
const askTimeout = 2 * time.Second

// askLines puts commands, given ids that begin with prefix, into messages within the limits of CONTRACT.md.
func askLines(cmds []domain.Command, prefix string, serial *uint64) (messages [][]byte) {
	var payload, line []byte
	lines := 0
	for i := range cmds {
		*serial++
		cmds[i].ID = prefix + strconv.FormatUint(*serial, 10)
		line = append(cmds[i].AppendJSON(line[:0]), '\n')
		if lines == domain.MaxMessageLines || len(payload)+len(line) > domain.MaxMessage {
			messages = append(messages, payload)
			payload, lines = nil, 0
		}
		payload = append(payload, line...)
		lines++
	}
	if lines > 0 {
		messages = append(messages, payload)
	}
	return messages
}

// asking is a round of asks on its way to the lane.
type asking struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when all of it is published, or something failed
	took   time.Duration // until the first message was acknowledged
	err    error
}

// ask sends the lane what the planner asks for now, unless the round before is still on its way.
func (r *run) ask(ctx context.Context, now domain.Instant) {
	if r.askEnded(ctx); r.asking != nil {
		return
	}
	if r.planner.wake() > now && !r.planner.ready() {
		return
	}
	repeated := r.planner.repeated
	cmds := r.planner.requests(now)
	if took := r.planner.answered; took > 0 {
		r.pace.replied(r.opts.Now(), took, r.planner.small)
		r.planner.answered = 0
	}
	r.sayWhoIsSilent(ctx)
	if len(cmds) == 0 {
		return
	}
	for i := range cmds {
		r.asked[cmds[i].Type].Inc()
	}
	r.repeats.Add(float64(r.planner.repeated - repeated))
	r.asking = r.publishAsks(ctx, askLines(cmds, r.idPrefix, &r.serial))
}

// sayWhoIsSilent reports, once, that the lane does not answer.
func (r *run) sayWhoIsSilent(ctx context.Context) {
	n, last := r.planner.givenUp, &r.planner.lastGivenUp
	switch {
	case n > 0 && !r.silent:
		r.log.WarnContext(ctx, "the lane does not answer requests of the scheduler; they are repeated, and the rest goes on. If the lane works otherwise, keep its event log and report this",
			"campaigns", n, "campaign", last.campaign, "class", last.class, "kind", last.key.Kind, "due_at", last.key.At.Time())
	case n == 0 && r.silent:
		r.log.InfoContext(ctx, "the lane has answered all requests, or what they were for is not due any more")
	}
	r.silent = n > 0
}

// publishAsks publishes messages one after the other, in the background.
func (r *run) publishAsks(ctx context.Context, messages [][]byte) *asking {
	ctx, cancel := context.WithCancel(ctx)
	a := &asking{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		began := r.opts.Now()
		for i, payload := range messages {
			// After an error the rest would meet the same. All of it is still due, and repeated after its pause.
			if a.err = r.publishAsk(ctx, payload); a.err != nil {
				return
			}
			if i == 0 {
				a.took = r.opts.Now().Sub(began)
			}
		}
	}()
	return a
}

func (r *run) publishAsk(ctx context.Context, payload []byte) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := r.js.PublishMsg(ctx, &nats.Msg{Subject: r.dueSubject, Data: payload}); err != nil {
		return fmt.Errorf("publishing %d bytes of asks on %s: %w", len(payload), r.dueSubject, err)
	}
	return nil
}

// askEnded looks whether the round of asks on its way has arrived.
func (r *run) askEnded(ctx context.Context) {
	a := r.asking
	if a == nil || !over(a.done) {
		return
	}
	a.cancel()
	r.asking = nil
	switch {
	case a.err != nil:
		r.askFailed.Inc()
		if !r.askFailing && ctx.Err() == nil {
			r.log.WarnContext(ctx, "asks not published; they are repeated", "err", a.err)
		}
		r.askFailing = true
	case r.askFailing:
		r.log.InfoContext(ctx, "asks are published again")
		r.askFailing = false
	}
	if a.took > 0 {
		r.pace.acked(r.opts.Now(), a.took)
	}
}

// abandon ends the round of asks under way, if any, and waits for it.
func (a *asking) abandon() {
	if a != nil {
		a.cancel()
		<-a.done
	}
}
