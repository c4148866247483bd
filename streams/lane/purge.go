package lane

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/hold"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// purgeStep is how many messages one purge removes: the stream takes no commands while the server works on it.
const purgeStep = 2000

// purge removes commands that events cover and that are older than the retention; when the stream is more than half
// full, at once. It never removes the last covered command: its timestamp is what proves, after a restore, that command
// and event stream belong together.
//
// While a backup holds the lane nothing is purged: it has taken the events up to some step and is about to take the
// commands, which must not begin behind that step. What is purged here was covered before we looked for the hold, so by
// the events of any backup that took it after that: neither a purge under way nor one by a zombie does harm.
func (o *owner) purge(ctx context.Context) error {
	type mark struct {
		at      time.Time
		covered uint64
	}
	var marks []mark  // what was covered when, rising
	var target uint64 // what is to be purged up to; kept while a backup holds it
	tick := time.NewTicker(o.opt.PurgeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		covered := o.durable.Load()
		now := o.opt.Now()
		if len(marks) == 0 || marks[len(marks)-1].covered != covered {
			marks = append(marks, mark{now, covered})
		}
		for len(marks) > 0 && now.Sub(marks[0].at) >= o.opt.Retention {
			target = marks[0].covered
			marks = marks[1:]
		}
		stream, err := o.opt.JetStream.Stream(ctx, topology.CmdStream(o.opt.Lane))
		if err != nil {
			continue // the server is away; whoever writes will notice
		}
		info := stream.CachedInfo()
		if limit := info.Config.MaxBytes; limit > 0 && info.State.Bytes > uint64(limit)/2 {
			target = covered
		}
		if info.State.FirstSeq >= target {
			continue
		}
		if _, held, err := hold.Held(ctx, o.opt.JetStream, hold.Purge(o.opt.Lane)); held || err != nil {
			continue // or the server is away
		}
		for first := info.State.FirstSeq; first < target && ctx.Err() == nil; {
			first = min(first+purgeStep, target)
			// Keeps what has sequence first and above.
			if err := stream.Purge(ctx, jetstream.WithPurgeSequence(first)); err != nil {
				o.opt.Logger.WarnContext(ctx, "covered commands not purged", "through", first, "err", err)
				break
			}
		}
	}
}
