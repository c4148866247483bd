package push

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Rehearse tries the newest line of the log that passes the filter of a Pusher of NewEvents, instead of its Run, as Run would: up to
// Tries times, with the pauses of Schedule. What is not delivered becomes a dead letter of the name. It returns the id of that, 0 =
// it was delivered. Errors: [ErrNoLine], that of ctx, and of reading and storing.
func (p *Pusher) Rehearse(ctx context.Context, push func(ctx context.Context, batch []Line) error) (letter uint64, err error) {
	from := newDirect(p.js, &p.opts, p.source)
	defer from.close()
	if err = from.find(ctx); err == nil {
		_, err = topology.FindOrMake(ctx, p.js, topology.PushDeadConfig)
	}
	if err != nil {
		return 0, fmt.Errorf("push: %w", err)
	}
	newest, id, err := from.newest(ctx)
	if err != nil {
		return 0, fmt.Errorf("push: %w", err)
	}
	call := &caller{push: onLines(push), batch: 1, timeout: p.opts.Timeout, optedOut: p.source.optedOut(from)}
	for tries := 1; ; tries++ {
		got := call.try(ctx, newest, false)
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case errors.Is(got.cause, errUnchecked):
			return 0, fmt.Errorf("push: %w", got.cause)
		case got.dropped > 0:
			return 0, fmt.Errorf("push: %w", ErrNoLine)
		case got.cause == nil:
			return 0, nil
		case tries < p.opts.Tries && !got.final:
			_ = natsx.Pause(ctx, p.opts.pause(tries)) // the next try finds that ctx has ended
			continue
		}
		l := p.newLetters(id, newest, tries, got.cause) // one
		err = from.add(ctx, &l[0])
		return l[0].ID, err
	}
}

// ErrNoLine: none of the newest messages of the log has a line that passes the filter, or its customer wants no reminders.
var ErrNoLine = errors.New("none of the last 1,000 messages of a lane has an event that passes the filter: make one, and rehearse again")

// newest returns the last line that passes the filter, of the newest message that has one.
func (d *direct) newest(ctx context.Context) (line []item, id messageID, err error) {
	for lane := range d.source.lanes(d.log.Lanes) {
		bounds, err := d.stream(lane).Bounds(ctx)
		if err != nil {
			return nil, id, err
		}
		judge, err := d.stream(lane).Judge(ctx)
		if err != nil {
			return nil, id, err
		}
		for n := bounds.Last; n >= max(bounds.First, 1) && bounds.Last-n < 1000; n-- {
			raw, err := d.stream(lane).Get(ctx, n)
			if err != nil {
				return nil, id, err
			}
			m, err := judge.Read(&raw)
			if err != nil {
				return nil, id, err
			}
			all, _ := d.source.lines(d.log.UUID, lane, &m)
			if len(all) == 0 {
				continue
			}
			if stored := raw.Time.UnixNano(); stored > id.Stored {
				line, id = all[len(all)-1:], messageID{Lane: lane, Sequence: n, Stored: stored}
			}
			break
		}
	}
	if line == nil {
		err = ErrNoLine
	}
	return line, id, err
}
