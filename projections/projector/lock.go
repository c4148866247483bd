package projector

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
)

const (
	// Lock is the advisory lock of the projector of a database: "scripprj" as bytes.
	Lock = 0x736372697070726a
	// lockEvery is the interval at which a standby projector tries to acquire the lock. It polls because a statement
	// that waits for the lock holds a snapshot, and so would keep vacuum from removing rows.
	lockEvery = time.Second
	// watchEvery is how often the holder checks that its connection and the tables exist.
	watchEvery = 2 * time.Second
	// watchFor bounds one check; after that the connection counts as lost.
	watchFor = 10 * time.Second
	closeFor = time.Second
)

// lock is the advisory lock, on a connection outside the pool. PostgreSQL releases it with the connection.
type lock struct{ conn *pgx.Conn }

// acquire waits for the lock.
func (p *Projector) acquire(ctx context.Context) (*lock, error) {
	conn, err := schema.Dial(ctx, p.db, "scrip projector")
	if err != nil {
		return nil, fmt.Errorf("connecting for the projector's lock: %w", err)
	}
	l := &lock{conn: conn}
	for logged := false; ; logged = true {
		var mine bool
		if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(Lock)).Scan(&mine); err != nil {
			l.close()
			return nil, fmt.Errorf("acquiring the projector's lock: %w", err)
		}
		if mine {
			if logged {
				p.opts.Logger.InfoContext(ctx, "the other projector ended, this one takes over")
			}
			return l, nil
		}
		if !logged {
			p.postgres.endAll(ctx)
			p.opts.Logger.InfoContext(ctx, "another projector is running on this database, this one is on standby")
			p.each(func(l *follower) { l.progress.state(Standby, nil) })
		}
		p.pause(ctx, lockEvery)
		if ctx.Err() != nil {
			l.close()
			return nil, ctx.Err()
		}
	}
}

// generationSQL identifies the tables, and whether they are those of a schema; NULL = there are none.
const generationSQL = `SELECT max(generation), (SELECT live::text = $2 FROM scrip_meta.format) FROM scrip.checkpoint WHERE projection = $1`

// watch returns an error when the lock may be lost, or the tables were dropped or exchanged. A lane detects the latter
// itself when it commits; an idle or stopped lane does not.
//
// They may have been exchanged before the lanes loaded their checkpoints, too: what those commit then is in the previous tables,
// which do not matter.
func (p *Projector) watch(ctx context.Context, l *lock, tablesIn string) error {
	var before *int64
	var lag []int64
	for {
		limited, done := context.WithTimeout(ctx, watchFor)
		var now *int64
		var live *bool
		err := l.conn.QueryRow(limited, generationSQL, fill.Projection, tablesIn).Scan(&now, &live)
		if err == nil {
			if lag, err = p.record(limited, l.conn, lag); schema.State(err) != "" {
				lag, err = nil, nil // PostgreSQL answers, and the lock is held: on a full disk for instance; the next round retries
			}
		}
		done()
		switch {
		case ctx.Err() != nil:
			return nil
		case tables.Missing(err):
			return errDropped
		case err != nil:
			return fmt.Errorf("%w: %w", errLockLost, err)
		case before != nil && now != nil && *now != *before, live != nil && !*live:
			return errExchanged
		}
		if now != nil {
			before = now
		}
		p.pause(ctx, watchEvery)
	}
}

func (l *lock) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeFor)
	defer cancel()
	_ = l.conn.Close(ctx) // closed, even with an error
}
