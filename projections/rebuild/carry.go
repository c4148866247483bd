package rebuild

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
)

const (
	// carryFor is how long an exchange waits for somebody who uses a view of others; carryRest how long for each one after
	// the first that was waited for in vain. The projector waits meanwhile.
	carryFor  = 300 * time.Millisecond
	carryRest = 10 * time.Millisecond
	// carryLate is how long they are waited for in all when the exchange has happened, carryTry in one attempt.
	carryLate = 10 * time.Second
	carryTry  = time.Second
)

// step keeps one thing that others made.
type step struct {
	what string
	sql  []string
}

// maintain makes what a transaction does next the session's own doing where that may do more than the owner of the tables:
// what others made is not the owner's.
func (s *Session) maintain(ctx context.Context, tx pgx.Tx) error {
	role := "NONE"
	if !s.super {
		role = pgx.Identifier{s.owner}.Sanitize()
	}
	_, err := tx.Exec(ctx, "SET LOCAL ROLE "+role+"; SET LOCAL search_path = pg_catalog", pgx.QueryExecModeSimpleProtocol)
	return err
}

// resume makes it the owner's again.
func (s *Session) resume(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SET LOCAL ROLE "+pgx.Identifier{s.owner}.Sanitize())
	return err
}

// steps keep guests when the tables that they are on have become the previous ones: first things come back into the schema,
// then they take the new tables for the old.
func (g *guests) steps() []step {
	var list []step
	for i := range g.moves {
		o := &g.moves[i]
		list = append(list, step{o.String(), []string{fmt.Sprintf("ALTER %s %s SET SCHEMA %s", o.Type, PreviousSchema+strings.TrimPrefix(o.Identity, schema.Name), schema.Name)}})
	}
	return append(list, g.anew...)
}

// carry takes steps in the transaction of an exchange. late are those for which somebody had to be waited for, or that may
// need such a one: they are for afterwards.
func (s *Session) carry(ctx context.Context, tx pgx.Tx, steps []step) (late []step, err error) {
	wait := carryFor
	for _, one := range steps {
		if isLate(late, one) {
			late = append(late, one)
			continue
		}
		err := s.take(ctx, tx, one, wait)
		switch {
		case err == nil:
		case isLockTimeout(err) || len(late) > 0:
			late, wait = append(late, one), carryRest
		case s.opts.DropDependents:
			late = append(late, one)
		default:
			return nil, refuse("%s cannot be kept when the tables are exchanged (%w); drop it and make it again afterwards, or let it stay with the tables put aside, "+
				"with which it is dropped (--drop-dependents)", one.what, err)
		}
	}
	return late, s.resume(ctx, tx)
}

// isLate says whether a thing waits for an earlier step of its own. One that is not in the schema yet would be made there,
// as another.
func isLate(late []step, one step) bool {
	return slices.ContainsFunc(late, func(l step) bool { return l.what == one.what })
}

// take takes one step, or leaves everything as it was.
func (s *Session) take(ctx context.Context, tx pgx.Tx, one step, wait time.Duration) error {
	return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint, where tx is a transaction already
		if err := s.maintain(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", wait.Milliseconds())); err != nil {
			return err
		}
		for _, sql := range one.sql {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// carryLater takes what is left when the exchange has happened, and returns what could not be kept. Should we die here, that
// is all of it: --drop-previous and the next rebuild find and name it.
func (s *Session) carryLater(ctx context.Context, steps []step) (left []string) {
	deadline := time.Now().Add(carryLate)
	for len(steps) > 0 {
		var late []step
		var waiting bool
		left = nil
		for _, one := range steps {
			if isLate(late, one) {
				late = append(late, one)
				continue
			}
			err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return s.take(ctx, tx, one, carryTry) })
			if err != nil {
				waiting = waiting || isLockTimeout(err)
				late, left = append(late, one), append(left, fmt.Sprintf("%s (%v)", one.what, err))
			}
		}
		if steps = late; !waiting || time.Now().After(deadline) || ctx.Err() != nil {
			return left
		}
	}
	return nil
}

// addIndexes makes indexes that others made on the live tables on those of another schema, where they are not there yet.
func (s *Session) addIndexes(ctx context.Context, name string, list []extraIndex) error {
	for _, x := range list {
		missing, err := lacks(ctx, s.pool, name, x)
		if err != nil {
			return err
		}
		if !missing {
			continue
		}
		definition := strings.Replace(x.Definition, " ON "+schema.Name+".", " ON "+name+".", 1)
		if err := s.make(ctx, index{Table: x.Table, Name: x.Name, Definition: definition, Btree: strings.Contains(definition, " USING btree ")}); err != nil {
			return fmt.Errorf("making index %s, which somebody made on table %s: %w", x.Name, x.Table, err)
		}
	}
	return nil
}

func lacks(ctx context.Context, db rower, name string, x extraIndex) (missing bool, err error) {
	err = db.QueryRow(ctx, "SELECT NOT EXISTS (SELECT 1 FROM pg_indexes WHERE schemaname = $1 AND tablename = $2 AND indexname = $3)", name, x.Table, x.Name).Scan(&missing)
	return missing, err
}

// lackIndexes refuses where an index was made since addIndexes: making it would hold everybody up.
func lackIndexes(ctx context.Context, tx pgx.Tx, name string, list []extraIndex) error {
	for _, x := range list {
		if missing, err := lacks(ctx, tx, name, x); err != nil {
			return err
		} else if missing {
			return refuse("index %s was made on table %s meanwhile; run it again, so that the new table has it as well", x.Name, x.Table)
		}
	}
	return nil
}
