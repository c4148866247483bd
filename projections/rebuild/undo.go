package rebuild

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

const (
	// previousMark starts the comment on the previous tables; their format follows.
	previousMark = "read tables of scrip before the last rebuild, format "
	// droppedPrefix starts the names of schemas that are set aside to be dropped; microseconds since 1970 follow.
	droppedPrefix = "scrip_dropped_"
)

// Undo exchanges the live and the previous tables: a second Undo reverts the first. The projector catches up from the
// checkpoints of the previous ones.
func (s *Session) Undo(ctx context.Context) (left []string, err error) {
	if err := sameVersion(ctx, s.pool); err != nil {
		return nil, err
	}
	extra, err := s.precheck(ctx, previousVersion)
	if err != nil {
		return nil, err
	}
	at, err := s.positions(ctx, s.pool, PreviousSchema)
	if err != nil {
		return nil, explain(err)
	}
	for n, p := range at {
		err := eventlog.Events(s.js, n).In(s.log).Verify(ctx, s.log.UUID, p)
		switch {
		case fill.IsLost(err):
			return nil, refuse("the log no longer has what the previous tables were filled from up to message %d of lane %d (%w); run `scrip rebuild` instead", p.Sequence, n, err)
		case err != nil:
			return nil, fmt.Errorf("looking for the checkpoint of the previous tables in the log: %w", err)
		}
	}
	if err := addIndexes(ctx, s.pool, PreviousSchema, extra); err != nil {
		return nil, explain(err)
	}
	left, err = s.exchange(ctx, PreviousSchema, func(ctx context.Context, tx pgx.Tx, _ bool) (int64, error) {
		ctx = context.WithoutCancel(ctx)
		if err := sameVersion(ctx, tx); err != nil { // the tables may have been replaced in between
			return 0, err
		}
		return schema.Format, previousVersion(ctx, tx)
	})
	return left, explain(err)
}

// previousVersion returns an error if there are no previous tables of this program's version.
func previousVersion(ctx context.Context, tx pgx.Tx) error {
	version, found, err := previousFormat(ctx, tx)
	switch {
	case err != nil:
		return err
	case !found:
		return refuse("there are no previous tables: nothing was rebuilt, or they were dropped")
	case version != schema.Format:
		return refuse("the previous tables have format %d, this program needs %d; run `scrip rebuild` instead", version, schema.Format)
	}
	return nil
}

// DropPrevious drops the tables that the last rebuild or Undo replaced. dropped is false if there were none.
func (s *Session) DropPrevious(ctx context.Context) (dropped bool, err error) {
	if err := sameVersion(ctx, s.pool); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		if _, dropped, err = previousFormat(ctx, tx); err != nil {
			return err
		}
		if err := s.others.checkPrevious(ctx, tx); err != nil {
			return err
		}
		return dropSchema(ctx, tx, PreviousSchema, waits.dropAsked)
	})
	if isLockTimeout(err) {
		return false, refuse("the previous tables have been read for longer than %s; try again when the readers have ended (pg_stat_activity, pg_locks)", waits.dropAsked)
	}
	return dropped, explain(err)
}

// previousFormat returns the format of the previous tables, 0 if it is not known; found is false if there are none.
func previousFormat(ctx context.Context, tx pgx.Tx) (version int64, found bool, err error) {
	var comment string
	err = tx.QueryRow(ctx, "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname = $1", PreviousSchema).Scan(&comment)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	version, _ = strconv.ParseInt(strings.TrimPrefix(comment, previousMark), 10, 64)
	return version, err == nil, err
}
