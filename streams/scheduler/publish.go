package scheduler

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/fanout"
)

// publishTimeout bounds one publish of requests, which goes on beside folding; no other requests are published until it ends.
// What was not published is still due and requested again.
const publishTimeout = 2 * time.Second

// requestMessages puts commands, given ids with a prefix, into messages within the contract's limits.
func requestMessages(cmds []wire.Command, prefix string, serial *uint64) (messages [][]byte) {
	var payload, line []byte
	lines := 0
	for i := range cmds {
		*serial++
		cmds[i].ID = prefix + strconv.FormatUint(*serial, 10)
		line = append(cmds[i].AppendJSON(line[:0]), '\n')
		if lines == wire.MaxMessageLines || len(payload)+len(line) > wire.MaxMessage {
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

// round is the requests of one time that are being published.
type round struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when all of it is published, or something failed
	took   time.Duration // until the first message was acknowledged
	err    error
}

// request publishes what the planner requests now, unless the round before is still being published.
func (r *run) request(ctx context.Context, now wire.Instant) {
	if r.roundEnded(ctx); r.round != nil {
		return
	}
	if r.planner.wake() > now && !r.planner.ready() {
		return
	}
	repeated := r.planner.repeated
	cmds := r.planner.requests(now)
	if took := r.planner.answered; took > 0 {
		r.pace.Replied(r.opts.Clock.Now(), took, r.planner.small)
		r.planner.answered = 0
	}
	if len(cmds) == 0 {
		return
	}
	for i := range cmds {
		r.requested[cmds[i].Type].Inc()
	}
	r.repeats.Add(float64(r.planner.repeated - repeated))
	r.round = r.publish(ctx, requestMessages(cmds, r.idPrefix, &r.serial))
}

// publish publishes messages one after the other, in the background.
func (r *run) publish(ctx context.Context, messages [][]byte) *round {
	ctx, cancel := context.WithCancel(ctx)
	x := &round{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(x.done)
		started := r.opts.Clock.Now()
		for i, payload := range messages {
			// After an error the rest would meet the same. All of it is still due, and repeated after its pause.
			if x.err = r.publishOne(ctx, payload); x.err != nil {
				return
			}
			if i == 0 {
				x.took = r.opts.Clock.Now().Sub(started)
			}
		}
	}()
	return x
}

func (r *run) publishOne(ctx context.Context, payload []byte) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if _, err := r.js.PublishMsg(ctx, &nats.Msg{Subject: r.dueSubject, Data: payload}); err != nil {
		return fmt.Errorf("publishing %d bytes of requests on %s: %w", len(payload), r.dueSubject, err)
	}
	return nil
}

// roundEnded takes in the result of the round that is being published, if it is there.
func (r *run) roundEnded(ctx context.Context) {
	x := r.round
	if x == nil || !fanout.Closed(x.done) {
		return
	}
	x.cancel()
	r.round = nil
	switch {
	case x.err != nil:
		r.requestsFailed.Inc()
		if !r.failing && ctx.Err() == nil {
			r.log.WarnContext(ctx, "requests to the lane not published; they are repeated", "err", x.err)
		}
		r.failing = true
	case r.failing:
		r.log.InfoContext(ctx, "requests to the lane are published again")
		r.failing = false
	}
	if x.took > 0 {
		r.pace.Acked(r.opts.Clock.Now(), x.took)
	}
}

func (x *round) abandon() {
	if x != nil {
		x.cancel()
		<-x.done
	}
}
