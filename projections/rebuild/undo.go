package rebuild

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
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
	switch err := s.inLog(ctx, "the previous tables", previous); {
	case errors.Is(err, ErrRefused):
		return fmt.Errorf("%w; run `scrip rebuild` instead", err)
	case err != nil:
		return explain(err)
	}
	if err := s.changeable(ctx); err != nil {
		return explain(err)
	}
	unwritable, err := s.exchange(ctx, previous, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.look(context.WithoutCancel(ctx), tx); err != nil { // the tables may have been replaced in between
			return err
		}
		return s.previous()
	})
	if schema.Blocked(err) {
		return refuse("%w", err)
	}
	if unwritable != nil {
		s.opts.Logger.WarnContext(ctx, "the tables that were in use could not be written; the next rebuild or verification drops them", "err", unwritable)
	}
	if err == nil {
		err = s.opts.Hook(Exchanged)
	}
	return explain(err)
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

// DropPrevious drops the tables that the last rebuild or Undo replaced, and those that a rebuild has filled and could
// not exchange. dropped is false if there were none.
func (s *Session) DropPrevious(ctx context.Context) (dropped bool, err error) {
	if err := s.look(ctx, s.pool); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE scrip_meta.format SET previous = NULL, previous_version = NULL"); err != nil {
			return err
		}
		for _, name := range []string{s.now.Previous, s.now.Kept} {
			if name == "" {
				continue
			}
			if err := schema.Drop(ctx, tx, name, waits.dropAsked); err != nil {
				return err
			}
			dropped = true
		}
		return nil
	})
	if schema.Blocked(err) {
		return false, refuse("the previous tables have been read for longer than %s; try again when the readers have ended (pg_stat_activity, pg_locks)", waits.dropAsked)
	}
	return dropped && err == nil, explain(err)
}
