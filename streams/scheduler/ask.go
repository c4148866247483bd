package scheduler

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain"
)

// askTimeout bounds one publish of asks. The fold waits for it, so it is short; what was not published is still due and
// asked again.
const askTimeout = 2 * time.Second

// askLines puts commands, given ids that begin with prefix, into messages within the contract's limits.
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

// ask sends the lane what the planner asks for now.
func (r *run) ask(ctx context.Context, now domain.Instant) {
	repeated := r.planner.repeated
	cmds := r.planner.asks(now)
	if len(cmds) == 0 {
		return
	}
	for i := range cmds {
		r.asked[cmds[i].Type].Inc()
	}
	r.repeats.Add(float64(r.planner.repeated - repeated))
	for _, payload := range askLines(cmds, r.idPrefix, &r.serial) {
		if err := r.publishAsk(ctx, payload); err != nil {
			// The rest would meet the same. All of it is still due, and repeated after its pause.
			r.askFailed.Inc()
			if !r.askFailing && ctx.Err() == nil {
				r.log.WarnContext(ctx, "asks not published; they are repeated", "err", err)
			}
			r.askFailing = true
			return
		}
	}
	if r.askFailing {
		r.log.InfoContext(ctx, "asks are published again")
		r.askFailing = false
	}
}

func (r *run) publishAsk(ctx context.Context, payload []byte) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := r.js.PublishMsg(ctx, &nats.Msg{Subject: r.dueSubject, Data: payload}); err != nil {
		return fmt.Errorf("publishing %d bytes of asks on %s: %w", len(payload), r.dueSubject, err)
	}
	return nil
}
