package projector

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// Lock is the advisory lock of whoever projects into a database: "scripprj" as bytes.
	Lock = 0x736372697070726a
	// lockEvery is how often a waiting projector asks for it. It asks, rather than have PostgreSQL wait, because a
	// waiting statement holds a snapshot, and that would keep vacuum from removing anything as long as it waits.
	lockEvery = time.Second
	// watchEvery is how often the holder looks whether its connection and the tables are still there.
	watchEvery = 2 * time.Second
	// watchFor is how long that may take: longer, and the connection counts as lost.
	watchFor = 10 * time.Second
	closeFor = time.Second
)

// lock is the advisory lock, on a connection outside the pool. PostgreSQL lets it go with the connection.
type lock struct{ conn *pgx.Conn }

// acquire waits for the lock.
func (p *Projector) acquire(ctx context.Context) (*lock, error) {
	config := p.db.Config()
	if config.BeforeConnect != nil { // as the pool does: a private cluster may have moved to another port
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, fmt.Errorf("connecting for the projector's lock: %w", err)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("connecting for the projector's lock: %w", err)
	}
	l := &lock{conn: conn}
	for told := false; ; told = true {
		var mine bool
		if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(Lock)).Scan(&mine); err != nil {
			l.close()
			return nil, fmt.Errorf("asking for the projector's lock: %w", err)
		}
		if mine {
			if told {
				p.opts.Logger.InfoContext(ctx, "the other projector is gone, this one takes over")
			}
			return l, nil
		}
		if !told {
			p.postgres.allBack(ctx)
			p.opts.Logger.InfoContext(ctx, "another projector works on this database, this one stands by")
			p.each(func(l *lane) { l.progress.state(Standby, nil) })
		}
		_ = topology.Pause(ctx, lockEvery)
		if ctx.Err() != nil {
			l.close()
			return nil, ctx.Err()
		}
	}
}

// generationSQL says which tables these are; NULL = there are none, or nothing was projected into them yet.
const generationSQL = `SELECT max(generation) FROM scrip.checkpoint WHERE projection = $1`

// watch returns an error when the lock may be lost, or the tables are gone or others than before. A lane notices the
// latter by itself when it commits; one that is idle, or has stopped, only here.
func (l *lock) watch(ctx context.Context) error {
	var before *int64
	for {
		asking, done := context.WithTimeout(ctx, watchFor)
		var now *int64
		err := l.conn.QueryRow(asking, generationSQL, Projection).Scan(&now)
		done()
		switch {
		case ctx.Err() != nil:
			return nil
		case tables.Missing(err):
			return errDropped
		case err != nil:
			return fmt.Errorf("%w: %w", errLockLost, err)
		case before != nil && now != nil && *now != *before:
			return errExchanged
		}
		if now != nil {
			before = now
		}
		_ = topology.Pause(ctx, watchEvery)
	}
}

func (l *lock) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeFor)
	defer cancel()
	_ = l.conn.Close(ctx) // it is closed, whatever the server says
}
