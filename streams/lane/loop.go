package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
)

// intakeBatch is how many command messages are taken from the feed at once.
const intakeBatch = 64

// considerEvery is how often the lane considers a snapshot and reports its status. Tests use a shorter time.
var considerEvery = time.Second

// loop is the lane's main loop. It takes the commands that have arrived, decides them at once, writes one step at a time,
// and collects the next one while a write is in flight: under load a write carries the commands that arrived during the one
// before it, and a single command does not wait.
func (o *owner) loop(ctx context.Context) error {
	tick := time.NewTicker(considerEvery)
	defer tick.Stop()
	defer o.resume(ctx)
	configured := o.configure()
	for {
		if o.full() {
			// No more fits: wait for the write, or publish the collected step.
		} else if err := o.collect(ctx); err != nil {
			return err
		}
		o.publish()
		if o.snapshotting && o.Settled() {
			o.snapshot(ctx)
			continue // messages that arrived meanwhile have been signalled and are not signalled again
		}
		var ready, acked <-chan struct{}
		if !o.full() {
			ready = o.feed.Ready()
		}
		if o.inFlight != nil {
			acked = o.inFlight.pending.Done()
		}
		var queries chan receivedQuery
		if len(o.walks) < maxWalks {
			queries = o.queries
		}
		var walking <-chan struct{}
		if len(o.walks) > 0 {
			walking = always
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ready:
			o.arrived = true
		case <-acked:
			if err := o.landed(ctx); err != nil {
				return err
			}
		case q := <-queries:
			if o.mayAnswer() {
				o.query(q)
			}
		case <-walking:
			o.walk()
		case c := <-o.confirmation.replies:
			if err := o.confirm(c); err != nil {
				return err
			}
		case err := <-o.saved:
			o.snapshotDone(ctx, err)
		case <-o.held.timer():
			// collect checks whether the first message may be decided now.
		case <-configured:
			configured = o.configure()
		case <-tick.C:
			o.considerSnapshot()
			o.considerConfirming(ctx)
			o.report(StateOwner)
		}
	}
}

// configure applies the settings in force to the commands that follow, and returns a channel that is closed at the next
// change. An event records what a setting decided: a fold of the log needs none.
func (o *owner) configure() (changed <-chan struct{}) {
	settings, changed := o.opt.Config.Current()
	o.State().SetGrace(settings.ReminderGrace)
	o.State().SetQuoted(settings.DeadLetterQuote)
	return changed
}

// full reports whether no more commands are collected: the step has its size, or a snapshot waits for a settled state.
func (o *owner) full() bool { return o.Full() || o.snapshotting }

// collect decides the messages that have arrived, without waiting, until the step has its size.
func (o *owner) collect(ctx context.Context) error {
	for !o.full() {
		if len(o.backlog) == 0 {
			if !o.arrived {
				return nil
			}
			batch, err := o.feed.TryBatch(intakeBatch, o.buffer[:0])
			o.buffer = batch
			if len(batch) == 0 {
				o.arrived = false
				clear(o.buffer[:cap(o.buffer)]) // an idle lane keeps no payloads: they may take 16 MiB
				if err != nil {
					return o.feedBroke(ctx, err)
				}
				return nil
			}
			o.backlog = batch
		}
		if !o.Fits(o.backlog[0].Data) {
			return nil
		}
		c, err := protocol.CommandOf(&o.backlog[0])
		if err != nil {
			return err
		}
		if o.early(ctx, &c) {
			return nil // it stays the first; steps decided before it are written and answered meanwhile
		}
		o.backlog = o.backlog[1:]
		if c.BadReply {
			o.opt.Metrics.badOutcome.Inc()
		}
		if c.Scope != wire.ScopeScheduler {
			o.lane.lastClientCommand.Store(o.opt.Now().UnixNano())
		}
		o.Decide(&c)
	}
	return nil
}

// feedBroke returns the error for the end of the command feed.
func (o *owner) feedBroke(ctx context.Context, err error) error {
	if err = o.contradiction(ctx, fmt.Errorf("reading commands: %w", o.Broken(err))); errors.Is(err, ErrStopped) {
		return fmt.Errorf("%w (%w)", err, errDoubtful)
	}
	return err
}

// contradiction checks, before the lane stops because commands and events do not fit, whether the cause is only that
// another owner has written meanwhile.
func (o *owner) contradiction(ctx context.Context, err error) error {
	if !errors.Is(err, ErrStopped) {
		return err
	}
	bounds, unknown := o.stream.Bounds(ctx)
	switch {
	case unknown != nil:
		return unknown // checked again when the lane is loaded again
	case o.Outrun(bounds.Last):
		return fmt.Errorf("%w, and has continued meanwhile: %s", errLost, err.Error())
	}
	return err
}
