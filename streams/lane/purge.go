package lane

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// purgeStep is how many messages one purge removes: the stream accepts no commands during a purge.
const purgeStep = 2000

// purge removes commands that events cover and that are older than the retention; when the stream is more than half full,
// at once. It never removes the last covered command: after a restore its timestamp proves that command and event stream
// belong together.
//
// While a backup has the lane's lock nothing is purged: it has copied the events up to some step and is about to copy the
// commands, which must not start after that step. A purge that is in progress when the lock is taken does no harm, nor does
// one by a server that lost the lane: it removes only commands that were covered before it looked for the lock, so the
// events of such a backup cover them.
func (o *owner) purge(ctx context.Context) error {
	type mark struct {
		at      time.Time
		covered uint64
	}
	var marks []mark  // what was covered when, rising
	var target uint64 // purge up to here; kept while a backup has the lock
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.opt.Clock.After(o.opt.PurgeEvery):
		}
		covered := o.durable.Load()
		now := o.opt.Clock.Now()
		if len(marks) == 0 || marks[len(marks)-1].covered != covered {
			marks = append(marks, mark{now, covered})
		}
		for len(marks) > 0 && now.Sub(marks[0].at) >= o.opt.Retention {
			target = marks[0].covered
			marks = marks[1:]
		}
		stream, err := o.opt.JetStream.Stream(ctx, topology.CmdStream(o.opt.Lane))
		if err != nil {
			continue // the server is unreachable; a write reports it
		}
		info := stream.CachedInfo()
		if limit := info.Config.MaxBytes; limit > 0 && info.State.Bytes > uint64(limit)/2 {
			target = covered
		}
		if info.State.FirstSeq >= target {
			continue
		}
		if _, held, err := lease.Locked(ctx, o.opt.JetStream, lease.PurgeLock(o.opt.Lane)); held || err != nil {
			continue // or the server is unreachable
		}
		for first := info.State.FirstSeq; first < target && ctx.Err() == nil; {
			first = min(first+purgeStep, target)
			// Keeps what has sequence first and above.
			if err := stream.Purge(ctx, jetstream.WithPurgeSequence(first)); err != nil {
				o.opt.Logger.WarnContext(ctx, "covered commands not purged", "through", first, "err", err)
				break
			}
			o.lane.signals.Purged.Send(first)
		}
	}
}
