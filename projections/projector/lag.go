package projector

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// pace estimates when a lane's tables are current again: from the rates at which messages were applied, and arrived, since the
// sample before the last.
type pace struct {
	at           [2]time.Time
	applied, end [2]uint64
}

// paceOver is the least time between two samples.
const paceOver = time.Second

// sample records how many messages are applied, and how many there are.
func (p *pace) sample(now time.Time, applied, end uint64) {
	if now.Sub(p.at[1]) < paceOver {
		return
	}
	p.at[0], p.applied[0], p.end[0] = p.at[1], p.applied[1], p.end[1]
	p.at[1], p.applied[1], p.end[1] = now, applied, end
}

// left estimates in how long the rest is applied; Unknown if it does not shrink.
func (p *pace) left(now time.Time, applied, end uint64) time.Duration {
	if end <= applied {
		return 0
	}
	elapsed := now.Sub(p.at[0])
	if p.at[0].IsZero() || elapsed <= 0 {
		return Unknown
	}
	gained := float64(applied-min(applied, p.applied[0])) - float64(end-min(end, p.end[0]))
	if gained <= 0 {
		return Unknown
	}
	return time.Duration(float64(end-applied) / gained * float64(elapsed))
}

// Unknown is a Progress.Current that is not known.
const Unknown time.Duration = -1

// What removing old rows goes by, see package tables.
//
// $1 = days
const keepSQL = `UPDATE scrip_meta.format SET keep_days = $1 WHERE keep_days <> $1`

// For view scrip.lag. It is no fold of the log.
//
// $1..$3 = lanes, messages behind, seconds until current, -1 = not known
const lagSQL = `
INSERT INTO scrip_meta.lag AS l (lane, behind, current_in, recorded_at)
SELECT lane, nullif(behind, -1), nullif(current_in, -1), clock_timestamp() FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) x (lane, behind, current_in)
ON CONFLICT (lane) DO UPDATE SET behind = excluded.behind, current_in = excluded.current_in, recorded_at = excluded.recorded_at`

// record writes for how long coupons are kept, and how late the lanes are, if that is not as before, or before is nil;
// it returns the latter.
func (p *Projector) record(ctx context.Context, conn *pgx.Conn, before []int64) (now []int64, err error) {
	lanes, behind, current := make([]int64, len(p.lanes)), make([]int64, len(p.lanes)), make([]int64, len(p.lanes))
	changed := before == nil
	if _, err := conn.Exec(ctx, keepSQL, p.opts.Keep()); err != nil {
		return nil, err
	}
	for i, l := range p.Progress() {
		lanes[i], behind[i], current[i] = int64(l.Lane), -1, int64(math.Round(l.CurrentIn()))
		if l.Behind != nil {
			behind[i] = int64(*l.Behind)
		}
		changed = changed || before[i] != behind[i]
	}
	if changed {
		_, err = conn.Exec(ctx, lagSQL, lanes, behind, current)
	}
	return behind, err
}

// What this projector recorded is not so any more.
const forgetSQL = `UPDATE scrip_meta.lag SET behind = NULL, current_in = NULL, recorded_at = clock_timestamp()`

const (
	// measureEvery is how often the ends of streams without a reader are looked up.
	measureEvery = 5 * time.Second
	// measurers is how many are looked up at a time: an answer may take 12 s.
	measurers = 16
)

// measure looks up where the streams of lanes end that wait or have stopped, until ctx ends. The readers of the others
// know it.
func (p *Projector) measure(ctx context.Context) error {
	for ctx.Err() == nil {
		var looks errgroup.Group
		looks.SetLimit(measurers)
		p.each(func(l *follower) {
			if !l.progress.unread() {
				return
			}
			looks.Go(func() error {
				var end *uint64
				if bounds, err := l.stream.Bounds(ctx); err == nil {
					end = &bounds.Last
				}
				l.progress.measured(end)
				return nil
			})
		})
		_ = looks.Wait() // none returns an error
		p.pause(ctx, measureEvery)
	}
	return nil
}
