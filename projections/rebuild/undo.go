package rebuild

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// Undo exchanges the live and the previous tables: a second Undo reverts the first. The projector catches up from the
// checkpoints of the previous ones.
func (s *Session) Undo(ctx context.Context) error {
	if err := s.look(ctx, s.pool); err != nil {
		return err
	}
	previous := s.now.Previous
	if err := s.previous(); err != nil {
		return err
	}
	at, err := s.positions(ctx, s.pool, previous)
	if err != nil {
		return explain(err)
	}
	for n, p := range at {
		err := eventlog.Events(s.js, n).In(s.log).Verify(ctx, s.log.UUID, p)
		switch {
		case fill.IsLost(err):
			return refuse("the log no longer has what the previous tables were filled from up to message %d of lane %d (%w); run `scrip rebuild` instead", p.Sequence, n, err)
		case err != nil:
			return fmt.Errorf("looking for the checkpoint of the previous tables in the log: %w", err)
		}
	}
	return explain(s.exchange(ctx, previous, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.look(context.WithoutCancel(ctx), tx); err != nil { // the tables may have been replaced in between
			return err
		}
		return s.previous()
	}))
}

// previous returns an error if there are no previous tables of this program's version.
func (s *Session) previous() error {
	switch {
	case s.now.Previous == "":
		return refuse("there are no previous tables: nothing was rebuilt, or they were dropped")
	case s.now.PreviousVersion != schema.Format:
		return refuse("the previous tables have format %d, this program needs %d; run `scrip rebuild` instead", s.now.PreviousVersion, schema.Format)
	}
	return nil
}

// DropPrevious drops the tables that the last rebuild or Undo replaced. dropped is false if there were none.
func (s *Session) DropPrevious(ctx context.Context) (dropped bool, err error) {
	if err := s.look(ctx, s.pool); err != nil || s.now.Previous == "" {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE scrip_meta.format SET previous = NULL, previous_version = NULL"); err != nil {
			return err
		}
		return schema.Drop(ctx, tx, s.now.Previous, waits.dropAsked)
	})
	if isLockTimeout(err) {
		return false, refuse("the previous tables have been read for longer than %s; try again when the readers have ended (pg_stat_activity, pg_locks)", waits.dropAsked)
	}
	return err == nil, explain(err)
}
