package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// load brings the state to where the event log ends: the newest snapshot that fits, and the events after it. It is the
// same fold that deciding does.
func (o *owner) load(ctx context.Context) error {
	o.snapshotted = o.opt.Now()
	if err := o.restore(ctx); err != nil {
		return fmt.Errorf("loading the snapshot: %w", err)
	}
	err := o.replay(ctx)
	if errors.Is(err, eventlog.ErrNewerFormat) {
		return fmt.Errorf("%w: %w; run a newer scrip", ErrStopped, err)
	}
	return err
}

// replay folds the event messages after the state's position.
func (o *owner) replay(ctx context.Context) error {
	reader, err := o.stream.Open(ctx, o.opt.Log.UUID, o.Mark().Position, eventlog.ReaderOptions{Logger: o.opt.Logger})
	if err != nil {
		return fmt.Errorf("reading the event log: %w", err)
	}
	defer reader.Close()
	var last *eventlog.Message
	err = reader.CatchUp(ctx, func(batch []eventlog.Message) error {
		for i := range batch {
			if err := o.Fold(&batch[i]); err != nil {
				return err
			}
		}
		newest := batch[len(batch)-1]
		last = &newest
		return nil
	})
	if err != nil {
		return err
	}
	if foreign := reader.Foreign(); foreign > 0 {
		o.opt.Metrics.foreign.WithLabelValues(o.lane.label).Add(float64(foreign))
	}
	o.Folded(last, reader.Sequence())
	o.durable.Store(o.Covered())
	return nil
}

// continues checks that the command stream is the one the events speak of, and goes on where they end.
func (o *owner) continues(ctx context.Context) error {
	commands := eventlog.Commands(o.opt.JetStream, o.opt.Lane)
	bounds, err := commands.Bounds(ctx)
	if err != nil {
		return err
	}
	return o.Continues(bounds, func(sequence uint64) (time.Time, error) {
		raw, err := commands.Get(ctx, sequence)
		return raw.Time, err
	})
}

// rebase writes, if an operator asked for it, the one step that breaks contiguity.
func (o *owner) rebase(ctx context.Context) error {
	if o.opt.Rebase == nil {
		return nil
	}
	bounds, err := eventlog.Commands(o.opt.JetStream, o.opt.Lane).Bounds(ctx)
	if err != nil {
		return err
	}
	w, err := o.Rebase(bounds, *o.opt.Rebase)
	if err != nil {
		return err
	}
	sequence, err := o.appender.Publish(ctx, w.Attempt)
	if err != nil {
		if sequence, err = o.resolve(ctx, w.Attempt, err); err != nil {
			return err
		}
	}
	o.acked(sequence)
	o.opt.Rebase, o.lane.opt.Rebase = nil, nil // once
	o.opt.Metrics.rebased.WithLabelValues(o.lane.label).Inc()
	o.opt.Logger.WarnContext(ctx, "lane rebased", "first_command", o.Covered()+1)
	return nil
}
