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
	// freshRounds is after how many checks the lag is recorded although it is as before: each 10 s. View scrip.lag takes
	// for not known what is older than 30 s.
	freshRounds = 5
	closeFor    = time.Second
	// name is the begin of the application_name of the connection that has the lock.
	name = "scrip projector"
)

// lock is the advisory lock, on a connection outside the pool. PostgreSQL releases it with the connection.
type lock struct{ conn *pgx.Conn }

// acquire waits for the lock.
func (p *Projector) acquire(ctx context.Context) (*lock, error) {
	conn, err := schema.Dial(ctx, p.db, name)
	if err != nil {
		return nil, fmt.Errorf("connecting for the projector's lock: %w", err)
	}
	l := &lock{conn: conn}
	for was := ""; ; {
		var mine bool
		if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(Lock)).Scan(&mine); err != nil {
			l.close()
			return nil, fmt.Errorf("acquiring the projector's lock: %w", err)
		}
		if mine {
			if was != "" {
				p.opts.Logger.InfoContext(ctx, "the projector's lock is free, this one takes over", "held_by", was)
			}
			return l, nil
		}
		who, found, err := schema.HolderOf(ctx, conn, Lock)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("looking who has the projector's lock: %w", err)
		}
		if text := who.String(); found && text != was {
			p.heldBy(ctx, who)
			was = text
		}
		p.pause(ctx, lockEvery)
		if ctx.Err() != nil {
			l.close()
			return nil, ctx.Err()
		}
	}
}

// heldBy records which session has the lock. A projector on standby is good only while that is a projector: nothing fills the tables
// else, and no claim shows it.
func (p *Projector) heldBy(ctx context.Context, who schema.Holder) {
	p.postgres.endAll(ctx)
	if who.Is(name) {
		p.opts.Logger.InfoContext(ctx, "another projector is running on this database, this one is on standby", "held_by", who)
		p.each(func(l *follower) { l.progress.standby(who.String()) })
		return
	}
	err := fmt.Errorf("the read tables are not filled: %s has the projector's lock, and is no projector; %s", who, who.End())
	p.opts.Logger.ErrorContext(ctx, "the projector waits for its lock", "err", err)
	p.each(func(l *follower) { l.progress.state(Waiting, err) })
}

// generationSQL identifies the tables, and whether they are those of a schema; NULL = there are none. Who drops the tables
// may drop schema scrip alone.
const generationSQL = `SELECT max(generation), (SELECT live::text = $2 FROM scrip_meta.format) FROM scrip_tables.checkpoint
WHERE projection = $1 AND EXISTS (SELECT FROM scrip.checkpoint)`

// watch returns an error when the lock may be lost, or the tables were dropped or exchanged. A lane detects the latter
// itself when it commits; an idle or stopped lane does not.
//
// They may have been exchanged before the lanes loaded their checkpoints, too: what those commit then is in the previous tables,
// which do not matter.
func (p *Projector) watch(ctx context.Context, l *lock, tablesIn string) error {
	var before *int64
	var lag []int64 // as recorded last
	for round := 0; ctx.Err() == nil; round++ {
		if round%freshRounds == 0 {
			lag = nil
		}
		limited, done := whole(ctx)
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
	return nil
}

// whole bounds statements by watchFor. When ctx ends, they have closeFor left: a statement that is cancelled costs
// the connection, and nothing could be recorded over it any more.
func whole(ctx context.Context) (context.Context, context.CancelFunc) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), watchFor)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(closeFor, cancel) })
	return limited, func() { stop(); cancel() }
}

// forget records that the lag is not known any more. Over the lock's connection: once that is lost another projector
// may have the lock, and what it recorded stays. A crash leaves what was recorded, which view scrip.lag does not show
// for long.
func (l *lock) forget() {
	ctx, cancel := context.WithTimeout(context.Background(), closeFor)
	defer cancel()
	_, _ = l.conn.Exec(ctx, forgetSQL) // fails with the connection
}

func (l *lock) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeFor)
	defer cancel()
	_ = l.conn.Close(ctx) // closed, even with an error
}
