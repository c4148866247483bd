package readmodel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/push/hold"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

const (
	// keepEvery is the pause between rounds, and keepShare how many times as long as a round it is at least: positions cost some
	// requests to NATS for each name and lane.
	keepEvery = 5 * time.Second
	keepShare = 20
	// roundFor bounds a round. The keeper of another server begins one when this has passed, if the round has not ended.
	roundFor = time.Minute
	endFor   = 2 * time.Second
	// mostKept is how many dead letters one transaction writes.
	mostKept = 200
)

// KeeperOptions of a Keeper; the zero value has the written defaults.
type KeeperOptions struct {
	// Clock is what the pauses go by. Defaults to wall.Machine.
	Clock wall.Clock
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Keeper keeps the tables current.
type Keeper struct {
	pool  *pgxpool.Pool
	js    jetstream.JetStream
	clock wall.Clock
	log   *slog.Logger
	ended testsignal.Signal[error] // a round

	created time.Time      // of the stream that after is of
	after   uint64         // the letters up to this id are in the table
	seen    push.DeadState // at the end of the last round that changed it
}

// NewKeeper returns a Keeper. It starts nothing.
func NewKeeper(pool *pgxpool.Pool, js jetstream.JetStream, opts KeeperOptions) *Keeper {
	k := &Keeper{pool: pool, js: js, clock: opts.Clock, log: opts.Logger}
	if k.clock == nil {
		k.clock = wall.Machine
	}
	if k.log == nil {
		k.log = slog.Default()
	}
	return k
}

// Run runs rounds until ctx ends. A failed round is tried again: NATS or PostgreSQL may be away, and the tables may not exist
// yet.
func (k *Keeper) Run(ctx context.Context) error {
	failed := false
	for {
		started := k.clock.Now()
		err := k.round(ctx)
		k.ended.Send(err)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !failed {
			k.log.Info("the tables of deliveries are not current; they will be", "err", err)
		}
		failed = err != nil
		pause := keepEvery
		if err == nil {
			pause = max(pause, keepShare*k.clock.Now().Sub(started)) // a failed round waited, and cost little
		}
		select {
		case <-k.clock.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

const (
	// One keeper at a time has a round. It is a row and no lock, since NATS is read meanwhile: no transaction is open then.
	//
	// $1 = how long a round may last, in seconds
	beginRound = `
INSERT INTO scrip_meta.push_round AS r (round, began_at) VALUES (1, clock_timestamp())
ON CONFLICT (one) DO UPDATE SET round = r.round + 1, began_at = clock_timestamp()
WHERE r.began_at IS NULL OR r.began_at NOT BETWEEN clock_timestamp() - make_interval(secs => $1) AND clock_timestamp() RETURNING round`

	// The first statement of each transaction: that of a keeper whose round another one has taken over writes nothing.
	//
	// $1 = round   $2 = whether it ends with this transaction
	goOnWithRound = `UPDATE scrip_meta.push_round SET began_at = CASE WHEN NOT $2 THEN began_at END WHERE round = $1 AND began_at IS NOT NULL`
)

// errOvertaken: the round took too long, and another keeper has begun one.
var errOvertaken = errors.New("the keeper of another server has taken over")

// round makes the tables equal to what NATS has: batches of dead letters, a transaction each, the positions with the first.
func (k *Keeper) round(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, roundFor)
	defer cancel()
	defer func() {
		if err != nil {
			k.after, k.seen = 0, push.DeadState{} // what was not written is read again
		}
	}()
	var number int64
	err = k.transact(ctx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, beginRound, roundFor.Seconds()).Scan(&number) })
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil // another keeper has one
	case err != nil:
		return err
	}
	defer func() {
		if err != nil { // so that the next one need not wait until this one has lasted long enough
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endFor)
			defer cancel()
			_ = k.write(ctx, &pgx.Batch{}, number, true)
		}
	}()
	for first, more := true, true; more; first = false {
		var b pgx.Batch
		if first {
			if err := k.positions(ctx, &b); err != nil {
				return err
			}
		}
		var written func()
		if more, written, err = k.letters(ctx, &b); err != nil {
			return err
		}
		if err := k.write(ctx, &b, number, !more); err != nil {
			return err
		}
		written()
	}
	return nil
}

// write runs statements in a transaction of a round.
func (k *Keeper) write(ctx context.Context, b *pgx.Batch, round int64, last bool) error {
	return k.transact(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, goOnWithRound, round, last)
		switch {
		case err != nil:
			return err
		case tag.RowsAffected() != 1:
			return errOvertaken
		case b.Len() == 0:
			return nil
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return fmt.Errorf("writing scrip_meta.push_audience, push_held and push_dead_letter: %w", err)
		}
		return nil
	})
}

// transact is one transaction. If PostgreSQL loses it in a crash, the next keeper writes it again.
func (k *Keeper) transact(ctx context.Context, f func(pgx.Tx) error) error {
	tx, err := k.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: "BEGIN; SET LOCAL synchronous_commit = off"})
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
	}
	return tx.Commit(ctx)
}

const putPosition = `
INSERT INTO scrip_meta.push_audience AS a (name, lane, delivered, dead, failed_tries, opted_out, waiting, oldest_waiting_at, recorded_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (name, lane) DO UPDATE SET delivered = excluded.delivered, dead = excluded.dead, failed_tries = excluded.failed_tries, opted_out = excluded.opted_out,
    waiting = excluded.waiting, oldest_waiting_at = excluded.oldest_waiting_at, recorded_at = excluded.recorded_at
WHERE (a.delivered, a.dead, a.failed_tries, a.opted_out, a.waiting, a.oldest_waiting_at, a.recorded_at)
    IS DISTINCT FROM (excluded.delivered, excluded.dead, excluded.failed_tries, excluded.opted_out, excluded.waiting, excluded.oldest_waiting_at, excluded.recorded_at)`

// Names are compared with their lane, which no name contains: both have a dot between them.
const dropPositions = `DELETE FROM scrip_meta.push_audience WHERE name || '.' || lane <> ALL ($1)`

// putHeld counts what was held back for a person.
const putHeld = `
INSERT INTO scrip_meta.push_held AS h (sent, merged, withheld_quiet, withheld_cap, held, recorded_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT ((true)) DO UPDATE SET sent = excluded.sent, merged = excluded.merged, withheld_quiet = excluded.withheld_quiet, withheld_cap = excluded.withheld_cap,
    held = excluded.held, recorded_at = excluded.recorded_at
WHERE h.recorded_at IS DISTINCT FROM excluded.recorded_at`

// positions queues what writes the positions of senders, and what was held back.
func (k *Keeper) positions(ctx context.Context, b *pgx.Batch) error {
	all, err := push.Positions(ctx, k.js)
	if err != nil {
		return err
	}
	kept := make([]string, 0, len(all))
	for _, p := range all {
		var oldest *time.Time
		if !p.Oldest.IsZero() {
			oldest = &p.Oldest
		}
		kept = append(kept, fmt.Sprintf("%s.%d", p.Name, p.Lane))
		b.Queue(putPosition, p.Name, p.Lane, whole(p.Delivered), whole(p.Dead), whole(p.Failed), whole(p.OptedOut), whole(p.Waiting), oldest, p.Saved)
	}
	b.Queue(dropPositions, kept)
	held, ok, err := hold.Recorded(ctx, k.js)
	if err != nil {
		return err
	}
	if ok {
		b.Queue(putHeld, whole(held.Sent), whole(held.Merged), whole(held.Quiet), whole(held.Cap), whole(held.Held), held.At)
	}
	return nil
}

const (
	// A letter that was written again has another id.
	dropOther = `DELETE FROM scrip_meta.push_dead_letter_row WHERE message = $1 AND id <> $2`
	putLetter = `INSERT INTO scrip_meta.push_dead_letter_row (message, id, line, name, lane, sequence, campaign, kind, customer_id, due_at, fired_at, reason, tries, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT (message, line) DO NOTHING`
	dropGone = `DELETE FROM scrip_meta.push_dead_letter_row WHERE message <> ALL ($1)`
)

// letters queues a batch of letters that are new, or were written again. After the last one it removes those that are
// gone. written is called when that is committed.
func (k *Keeper) letters(ctx context.Context, b *pgx.Batch) (more bool, written func(), err error) {
	written = func() {}
	now, err := push.ReadDeadState(ctx, k.js)
	if err != nil || now == k.seen {
		return false, written, err
	}
	if now.Created != k.created {
		k.created, k.after = now.Created, 0
	}
	letters, last, bad, err := push.LettersAfter(ctx, k.js, nil, k.after, mostKept)
	if err != nil {
		return false, written, err
	}
	for _, problem := range bad {
		k.log.Warn("a dead letter is not in the table", "err", problem)
	}
	for i := range letters {
		l := &letters[i]
		b.Queue(dropOther, l.Message(), whole(l.ID))
		for n, r := range l.Reminders {
			b.Queue(putLetter, l.Message(), whole(l.ID), n+1, l.Name, l.Lane, whole(l.Sequence), pgcopy.Clean(r.Campaign), pgcopy.Clean(r.Kind), pgcopy.Clean(r.CustomerID),
				instant(r.DueAt), instant(r.At), pgcopy.Clean(l.Error), l.Tries, l.At)
		}
	}
	if more = last != k.after; !more {
		there, err := push.LetterMessages(ctx, k.js)
		if err != nil {
			return false, written, err
		}
		b.Queue(dropGone, append([]string{}, there...))
	}
	return more, func() {
		k.after = last
		if !more {
			k.seen = now // what came since then changes the state, and is read in the next round
		}
	}, nil
}

// whole is a count as bigint holds it. Letters of a sender may have any number.
func whole(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// instant is a time that PostgreSQL can store, NULL for none.
func instant(t time.Time) *time.Time {
	if t.IsZero() || t.Year() < 0 || t.Year() > 9999 {
		return nil
	}
	return &t
}
