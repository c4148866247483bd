package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// load builds the state at the end of the event log: from the newest snapshot that fits, and the events after it. It is the
// same fold as in deciding.
func (o *owner) load(ctx context.Context) error {
	o.snapshotted = o.opt.Clock.Now()
	if err := o.restore(ctx); err != nil {
		return fmt.Errorf("loading the snapshot: %w", err)
	}
	err := o.replay(ctx)
	if errors.Is(err, eventlog.ErrNewerFormat) || errors.Is(err, eventlog.ErrUnreadable) {
		return fmt.Errorf("%w: %w; run a newer scrip. To lose the decisions of that message instead, start once with --skip-message %d=SEQ", ErrStopped, err, o.opt.Lane)
	}
	return err
}

// writeAlone writes a step before the loop runs.
func (o *owner) writeAlone(ctx context.Context, w *protocol.Write) error {
	sequence, err := o.appender.Publish(ctx, w.Attempt)
	if err != nil {
		if sequence, err = o.resolve(ctx, w.Attempt, err); err != nil {
			return err
		}
	}
	o.stored(sequence)
	return nil
}

// replay folds the event messages after the state's position.
func (o *owner) replay(ctx context.Context) error {
	reader, err := o.stream.Open(ctx, o.opt.Log.UUID, o.term.Mark().Position, eventlog.ReaderOptions{Logger: o.opt.Logger, Alarmed: &o.lane.alarmed})
	if err != nil {
		return fmt.Errorf("reading the event log: %w", err)
	}
	defer reader.Close()
	var last *eventlog.Message
	err = reader.CatchUp(ctx, func(batch []eventlog.Message) error {
		for i := range batch {
			if err := o.term.Fold(&batch[i]); err != nil {
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
	if foreign := reader.Alarms(); foreign > 0 {
		o.opt.Metrics.foreign.WithLabelValues(o.lane.label).Add(float64(foreign))
	}
	o.term.Folded(last, reader.Sequence())
	o.durable.Store(o.term.Covered())
	return nil
}

// checkCommands checks that the command stream is the one that the events refer to, and that it continues where they end. One
// contradiction is not believed: a leader that was replaced may answer without knowing it, and another owner may have
// written the event stream since. So both streams are read again, on a replicated log for half a minute. Errors:
// ErrStopped, errLost, and those of reading.
func (o *owner) checkCommands(ctx context.Context) error {
	for look := 0; ; look++ {
		replicated, err := o.compare(ctx)
		if err = o.contradiction(ctx, err); !errors.Is(err, ErrStopped) {
			return err
		}
		pauses := checkPauses(replicated)
		if look == len(pauses) {
			return err
		}
		o.opt.Logger.WarnContext(ctx, "commands and events contradict each other; reading both again", "err", err)
		o.lane.report(func(s *Status) { s.Error = err.Error() })
		if err := natsx.Pause(ctx, pauses[look]); err != nil {
			return err
		}
	}
}

// checkPauses is replaced by tests, which do not wait for half a minute.
var checkPauses = protocol.ContradictionPauses

// compare is one check of checkCommands. It reports whether the command stream has more than one copy.
func (o *owner) compare(ctx context.Context) (replicated bool, err error) {
	commands := eventlog.Commands(o.opt.JetStream, o.opt.Lane)
	bounds, err := commands.Bounds(ctx)
	if err != nil {
		return false, err
	}
	return bounds.Replicated, o.term.Continues(bounds, func(sequence uint64) (time.Time, error) {
		raw, err := commands.Get(ctx, sequence)
		return raw.Time, err
	})
}

// rebase writes, if an operator requested it, the one step that breaks contiguity. Without a sequence it does so only while
// commands and events contradict each other persistently: a flag that was left in a service's start line must not drop, at
// every start, commands that are acknowledged and not yet decided.
func (o *owner) rebase(ctx context.Context) error {
	if o.opt.Rebase == nil {
		return nil
	}
	first := *o.opt.Rebase
	if first == 0 {
		switch err := o.checkCommands(ctx); {
		case err == nil:
			o.opt.Rebase, o.lane.opt.Rebase = nil, nil // there is no contradiction to resolve
			o.opt.Logger.WarnContext(ctx, "not rebased: commands and events agree; remove --rebase from the command line")
			return nil
		case !errors.Is(err, ErrStopped):
			return err
		}
	}
	bounds, err := eventlog.Commands(o.opt.JetStream, o.opt.Lane).Bounds(ctx)
	if err != nil {
		return err
	}
	covered := o.term.Covered()
	w, err := o.term.RebaseWrite(bounds, first)
	if err != nil {
		return err
	}
	if err := o.writeAlone(ctx, w); err != nil {
		return err
	}
	o.opt.Rebase, o.lane.opt.Rebase = nil, nil // once
	o.opt.Metrics.rebased.WithLabelValues(o.lane.label).Inc()
	// skipped: commands of the present stream that are never decided. again: those that are decided a second time.
	next := o.term.Covered() + 1
	skipped, again := uint64(0), uint64(0)
	if from := max(covered+1, bounds.First); next > from {
		skipped = next - from
	} else if next <= covered {
		again = min(covered, bounds.Last) + 1 - next
	}
	o.opt.Logger.WarnContext(ctx, "lane rebased", "covered_before", covered, "next_command", next, "skipped", skipped, "decided_again", again)
	return nil
}
