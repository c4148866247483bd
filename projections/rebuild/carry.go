package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
)

const (
	// carryFor is how long an exchange waits for the lock on a dependent that is in use; carryRest how long for each
	// one after the first timeout. The projector waits meanwhile.
	carryFor  = 300 * time.Millisecond
	carryRest = 10 * time.Millisecond
	// carryLate bounds the total wait after the exchange, carryTry one attempt.
	carryLate = 10 * time.Second
	carryTry  = time.Second
)

// step has the statements that carry over one dependent.
type step struct {
	what string
	sql  []string
}

// maintain switches a transaction from the owner of the tables to the session's own role, if that is a superuser:
// dependents may belong to other roles.
func (s *Session) maintain(ctx context.Context, tx pgx.Tx) error {
	role := "NONE"
	if !s.super {
		role = pgx.Identifier{s.owner}.Sanitize()
	}
	_, err := tx.Exec(ctx, "SET LOCAL ROLE "+role+"; SET LOCAL search_path = pg_catalog", pgx.QueryExecModeSimpleProtocol)
	return err
}

// resume switches back to the owner.
func (s *Session) resume(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SET LOCAL ROLE "+pgx.Identifier{s.owner}.Sanitize())
	return err
}

// steps returns the steps that carry over dependents after their tables became the previous ones: first they move back
// into the schema, then they are created again on the new tables.
func (g *dependents) steps() []step {
	var list []step
	for i := range g.moves {
		o := &g.moves[i]
		list = append(list, step{o.String(), []string{fmt.Sprintf("ALTER %s %s SET SCHEMA %s", o.Type, PreviousSchema+strings.TrimPrefix(o.Identity, schema.Name), schema.Name)}})
	}
	return append(list, g.recreate...)
}

// carry runs steps in the transaction of an exchange. late are those that timed out waiting for a lock, or that may
// depend on such a step: carryLater runs them.
func (s *Session) carry(ctx context.Context, tx pgx.Tx, steps []step) (late []step, err error) {
	wait := carryFor
	for _, one := range steps {
		if isLate(late, one) {
			late = append(late, one)
			continue
		}
		err := s.run(ctx, tx, one, wait)
		switch {
		case err == nil:
		case isLockTimeout(err) || len(late) > 0:
			late, wait = append(late, one), carryRest
		case s.opts.DropDependents:
			late = append(late, one)
		default:
			return nil, refuse("%s cannot be kept when the tables are exchanged (%w); drop it and create it again afterwards, or leave it on the previous tables, "+
				"with which it is dropped (--drop-dependents)", one.what, err)
		}
	}
	return late, s.resume(ctx, tx)
}

// isLate reports whether an earlier step of the same dependent is late. Before it is moved, creating it would make a
// second object in the schema.
func isLate(late []step, one step) bool {
	return slices.ContainsFunc(late, func(l step) bool { return l.what == one.what })
}

// take runs one step, or changes nothing.
func (s *Session) run(ctx context.Context, tx pgx.Tx, one step, wait time.Duration) error {
	return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint if tx is a transaction
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

// carryLater runs the late steps after the exchange, and returns the dependents that could not be carried over. After a
// crash here these are all late ones: --drop-previous and the next rebuild find and name them.
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
			err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return s.run(ctx, tx, one, carryTry) })
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

// Lists the grants on the tables in use as GRANT statements for the new ones: on the schema, its relations, their
// columns and its functions, of which those that PUBLIC may not call are revoked first.
//
// $1 = from   $2 = to
const grantsSQL = `
WITH o (kind, name, columns, acl, owner) AS (
    SELECT 'SCHEMA', format('%I', $2::text), '', s.nspacl, s.nspowner FROM pg_namespace s WHERE s.nspname = $1
    UNION ALL
    SELECT 'TABLE', format('%I.%I', $2::text, c.relname), '', c.relacl, c.relowner
    FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
    WHERE s.nspname = $1 AND to_regclass(format('%I.%I', $2::text, c.relname)) IS NOT NULL
    UNION ALL
    SELECT 'TABLE', format('%I.%I', $2::text, c.relname), format(' (%I)', t.attname), t.attacl, NULL
    FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace JOIN pg_attribute t ON t.attrelid = c.oid AND NOT t.attisdropped
    WHERE s.nspname = $1 AND EXISTS (SELECT 1 FROM pg_attribute x WHERE x.attrelid = to_regclass(format('%I.%I', $2::text, c.relname))
                                       AND x.attname = t.attname AND NOT x.attisdropped)
    UNION ALL
    SELECT 'FUNCTION', format('%I.%I()', $2::text, p.proname), '', p.proacl, p.proowner
    FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace
    WHERE s.nspname = $1 AND p.pronargs = 0 AND to_regprocedure(format('%I.%I()', $2::text, p.proname)) IS NOT NULL
)
SELECT format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', name) FROM o WHERE kind = 'FUNCTION' AND acl IS NOT NULL
UNION ALL
SELECT format('GRANT %s%s ON %s %s TO %s%s', a.privilege_type, columns, kind, name,
              CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
FROM o, aclexplode(acl) a WHERE a.grantee IS DISTINCT FROM o.owner`

// copyGrants gives the roles that may use one schema's tables the same rights on another's.
func copyGrants(ctx context.Context, tx pgx.Tx, from, to string) error {
	rows, err := tx.Query(ctx, grantsSQL, from, to)
	if err != nil {
		return fmt.Errorf("reading the grants on the tables: %w", err)
	}
	grants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("reading the grants on the tables: %w", err)
	}
	for _, grant := range grants {
		if _, err := tx.Exec(ctx, grant); err != nil {
			return errors.Join(fmt.Errorf("copying a grant to the new tables: %s", grant), err)
		}
	}
	return nil
}
