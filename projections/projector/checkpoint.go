package projector

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// Projection is the name of this projection in table checkpoint.
const Projection = "tables"

// channel receives a notification "<lane> <sequence>" for each checkpoint that moves.
const channel = "scrip_checkpoint"

// Creates the checkpoint of a lane that has none, before the first message.
//
// $1 = projection   $2 = lane   $3 = log
const createCheckpointSQL = `
INSERT INTO scrip.checkpoint (projection, lane, sequence, updated_at, log, digest)
VALUES ($1, $2, 0, clock_timestamp(), $3, '') ON CONFLICT (projection, lane) DO NOTHING`

// $1 = projection   $2 = lane
const loadCheckpointSQL = `
SELECT sequence, log, digest, log_time, generation FROM scrip.checkpoint WHERE projection = $1 AND lane = $2`

// The fence: no row is updated if the checkpoint is not at the position that this projector last committed, or if the
// tables were exchanged since (see migration 6). It is the first statement of a transaction: an exchange locks out
// writers of this table, and no transaction may have written other rows by then.
//
// $1 = projection   $2 = lane   $3, $4, $5 = sequence, digest and lane time of the new position   $6, $7, $8, $9 =
// sequence, digest, log and generation of the old one
const advanceSQL = `
UPDATE scrip.checkpoint SET sequence = $3, digest = $4, log_time = $5, updated_at = clock_timestamp()
WHERE projection = $1 AND lane = $2 AND sequence = $6 AND digest = $7 AND log = $8 AND generation = $9`

const notifySQL = `SELECT pg_notify('` + channel + `', $1)`

// load reads the lane's checkpoint.
func (l *lane) load(ctx context.Context) error {
	batch := &pgx.Batch{}
	batch.Queue(createCheckpointSQL, Projection, l.number, l.p.log.UUID)
	at := eventlog.Position{Lane: l.number}
	var clock pgtype.Timestamptz
	var generation int64
	batch.Queue(loadCheckpointSQL, Projection, l.number).QueryRow(func(row pgx.Row) error {
		return row.Scan(&at.Sequence, &at.Log, &at.Digest, &clock, &generation)
	})
	if err := l.p.db.SendBatch(ctx, batch).Close(); err != nil {
		return postgresError(fmt.Sprintf("reading the checkpoint of lane %d", l.number), err)
	}
	l.at, l.clock, l.generation = at, 0, generation
	if clock.Valid {
		l.clock = wire.At(clock.Time)
	}
	return nil
}

// advance moves the checkpoint to a new position and queues a notification for the commit.
func (l *lane) advance(ctx context.Context, tx pgx.Tx, to eventlog.Position, clock wire.Instant) error {
	batch := &pgx.Batch{}
	fenced := false
	batch.Queue(advanceSQL, Projection, l.number, int64(to.Sequence), to.Digest, clock.Time(),
		int64(l.at.Sequence), l.at.Digest, l.at.Log, l.generation).Exec(func(tag pgconn.CommandTag) error {
		fenced = tag.RowsAffected() != 1
		return nil
	})
	batch.Queue(notifySQL, fmt.Sprintf("%d %d", l.number, to.Sequence))
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return postgresError(fmt.Sprintf("moving the checkpoint of lane %d", l.number), err)
	}
	if fenced {
		return fmt.Errorf("lane %d: %w", l.number, errFenced)
	}
	return nil
}

// Synced waits until the tables have the events of a lane up to a sequence. It uses notifications of PostgreSQL, so the
// projector may be another process; it returns an error when the connection breaks.
func Synced(ctx context.Context, db *pgxpool.Pool, lane int, sequence uint64) error {
	if sequence == 0 {
		return nil // nothing to wait for, and no commit would send a notification
	}
	pooled, err := db.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("waiting for message %d of lane %d in the read tables: %w", sequence, lane, err)
	}
	// A connection that listens must not go back to the pool.
	conn := pooled.Hijack()
	defer (&lock{conn: conn}).close()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return fmt.Errorf("waiting for message %d of lane %d in the read tables: %w", sequence, lane, err)
	}
	for {
		var there bool
		err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM scrip.checkpoint WHERE projection = $1 AND lane = $2 AND sequence >= $3)`,
			Projection, lane, int64(sequence)).Scan(&there)
		switch {
		case there && err == nil:
			return nil
		case err != nil && !tables.Missing(err):
			return fmt.Errorf("waiting for message %d of lane %d in the read tables: %w", sequence, lane, err)
		}
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return fmt.Errorf("waiting for message %d of lane %d in the read tables: %w", sequence, lane, errors.Join(ctx.Err(), err))
		}
	}
}
