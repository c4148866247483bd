package replay

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Which relations this transaction holds write locks on: PostgreSQL keeps them to its end, so this is all that it wrote
// to, made or altered. Gone ones have no name any more. Temporary ones, TOAST and the catalog's own are no concern.
//
// $1 = schema
const writtenSQL = `
SELECT DISTINCT l.relation, coalesce(s.nspname || '.' || c.relname, '')
FROM pg_locks l LEFT JOIN pg_class c ON c.oid = l.relation LEFT JOIN pg_namespace s ON s.oid = c.relnamespace
WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.granted
  AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')
  AND (s.nspname IS NULL OR s.nspname <> $1 AND s.nspname NOT IN ('pg_catalog', 'pg_toast', 'information_schema') AND s.nspname NOT LIKE 'pg\_temp\_%' AND s.nspname NOT LIKE 'pg\_toast\_temp\_%')`

// What this transaction made outside the schema that needs no lock.
//
// $1 = schema
const madeSQL = `
SELECT 'function ' || s.nspname || '.' || o.proname FROM pg_proc o JOIN pg_namespace s ON s.oid = o.pronamespace
WHERE o.xmin = pg_current_xact_id_if_assigned()::xid AND s.nspname <> $1 AND s.nspname NOT LIKE 'pg\_temp\_%'
UNION ALL
SELECT 'type ' || s.nspname || '.' || o.typname FROM pg_type o JOIN pg_namespace s ON s.oid = o.typnamespace
WHERE o.xmin = pg_current_xact_id_if_assigned()::xid AND s.nspname <> $1 AND s.nspname NOT LIKE 'pg\_temp\_%' AND s.nspname NOT LIKE 'pg\_toast%'
UNION ALL
SELECT 'schema ' || nspname FROM pg_namespace
WHERE xmin = pg_current_xact_id_if_assigned()::xid AND nspname <> $1 AND nspname NOT LIKE 'pg\_temp\_%' AND nspname NOT LIKE 'pg\_toast\_temp\_%'
LIMIT 1`

// OutsideError: a projection wrote outside its schema. It was rolled back.
type OutsideError struct{ Schema, Object string }

func (e *OutsideError) Error() string {
	return fmt.Sprintf("it writes to %s, outside its schema %s, which is refused; write to tables of its own (names without a schema are looked up there)", e.Object, e.Schema)
}

// guard refuses a transaction that wrote outside the schema.
func (p *projection) guard(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, writtenSQL, p.Name)
	if err != nil {
		return away(err)
	}
	outside := ""
	var oid uint32
	var name string
	_, err = pgx.ForEachRow(rows, []any{&oid, &name}, func() error {
		if name == "" {
			name = p.others[oid] // dropped; not there before: one of this transaction's own
		}
		if outside == "" {
			outside = name
		}
		return nil
	})
	if err != nil {
		return away(err)
	}
	if outside == "" {
		if err := tx.QueryRow(ctx, madeSQL, p.Name).Scan(&outside); err != nil && err != pgx.ErrNoRows {
			return away(err)
		}
	}
	if outside != "" {
		return &OutsideError{Schema: p.Name, Object: strings.TrimSpace(outside)}
	}
	return nil
}

// lookAround notes which relations are there that are not the projection's.
func (p *projection) lookAround(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT c.oid, s.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
		WHERE s.nspname <> $1 AND s.nspname NOT LIKE 'pg\_%'`, p.Name)
	if err != nil {
		return away(err)
	}
	p.others = map[uint32]string{}
	var oid uint32
	var name string
	_, err = pgx.ForEachRow(rows, []any{&oid, &name}, func() error {
		p.others[oid] = name
		return nil
	})
	return away(err)
}
