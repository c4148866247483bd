package rebuild

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
)

// Definition is the definition of an index, constraint, view or function of the read tables.
type Definition struct {
	Relation string // the table or view it belongs to; empty for a function
	What     string // its kind and name
	Text     string // as in schema scrip
}

// The index of a constraint is part of the constraint.
//
// $1 = schema
const definitionsSQL = `
SELECT t.relname::text, 'index ' || i.relname, pg_get_indexdef(i.oid) || CASE WHEN x.indisvalid THEN '' ELSE ' (invalid)' END
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid JOIN pg_namespace s ON s.oid = t.relnamespace
WHERE s.nspname = $1 AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.oid AND k.conrelid = t.oid)
UNION ALL
SELECT t.relname::text, 'constraint ' || k.conname, pg_get_constraintdef(k.oid)
FROM pg_constraint k JOIN pg_class t ON t.oid = k.conrelid JOIN pg_namespace s ON s.oid = t.relnamespace WHERE s.nspname = $1
UNION ALL
SELECT v.relname::text, 'view ' || v.relname, pg_get_viewdef(v.oid)
FROM pg_class v JOIN pg_namespace s ON s.oid = v.relnamespace WHERE s.nspname = $1 AND v.relkind = 'v'
UNION ALL
SELECT '', format('function %s(%s)', p.proname, pg_get_function_identity_arguments(p.oid)), pg_get_functiondef(p.oid)
FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace WHERE s.nspname = $1 AND p.prokind = 'f'
ORDER BY 1, 2`

// Definitions returns the definitions of the live tables in a transaction's snapshot, and those that the migrations of
// this program create.
func (s *Session) Definitions(ctx context.Context, live pgx.Tx) (found, expected []Definition, err error) {
	if found, err = definitions(ctx, live, schema.Name); err != nil {
		return nil, nil, err
	}
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := schema.Create(ctx, tx, referenceSchema); err != nil {
		return nil, nil, err
	}
	expected, err = definitions(ctx, tx, referenceSchema)
	return found, expected, err
}

func definitions(ctx context.Context, tx pgx.Tx, name string) ([]Definition, error) {
	// So that PostgreSQL writes every name with its schema.
	if _, err := tx.Exec(ctx, "SET LOCAL search_path = pg_catalog"); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, definitionsSQL, name)
	if err != nil {
		return nil, fmt.Errorf("reading the definitions of schema %s: %w", name, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Definition])
	own := regexp.MustCompile(`\b` + name + `\b`)
	for i := range list {
		list[i].Text = own.ReplaceAllLiteralString(list[i].Text, schema.Name)
	}
	return list, err
}
