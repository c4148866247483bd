package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/projections/schema"
)

// syntaxError is SQLSTATE syntax_error.
const syntaxError = "42601"

// Definition returns the projection that the file describes.
func (f *SQLFile) Definition() Definition {
	return Definition{
		Name: f.Name, Version: f.createPrint, FoldVersion: f.foldPrint,
		check: f.check, Create: f.createTables, Fold: f.foldBatch, share: true, readers: f.Readers,
	}
}

// check prepares all statements, so that PostgreSQL reports syntax errors before anything is created. Missing tables
// are only detected when the statements run.
func (f *SQLFile) check(ctx context.Context, conn *pgx.Conn) error {
	for _, list := range [][]statement{f.create, f.fold} {
		for _, s := range list {
			_, err := conn.Prepare(ctx, "", s.sql)
			if state := schema.State(err); state == syntaxError {
				return f.explain(s, err)
			} else if err != nil && state == "" {
				return err
			}
		}
	}
	return nil
}

func (f *SQLFile) createTables(ctx context.Context, tx pgx.Tx) error {
	if err := f.run(ctx, tx, f.create); err != nil {
		return err
	}
	var taken bool
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = current_schema() AND c.relname = $1)", EventsTable).Scan(&taken)
	if err != nil {
		return err
	}
	if taken {
		return &SyntaxError{File: f.file, Line: f.create[0].line, Problem: "the projection creates a table named events, which is the name of the batch; give it another name"}
	}
	return nil
}

func (f *SQLFile) foldBatch(ctx context.Context, tx pgx.Tx, b *Batch) error {
	// PostgreSQL empties it at each commit, and drops it with the connection.
	if _, err := tx.Exec(ctx, "CREATE TEMPORARY TABLE IF NOT EXISTS "+EventsTable+" ("+strings.Replace(columnsSQL(), "raw jsonb NOT NULL", "raw jsonb", 1)+") ON COMMIT DELETE ROWS"); err != nil {
		return err
	}
	if err := copyEvents(ctx, tx, pgx.Identifier{"pg_temp", EventsTable}, b.Events, f.raw); err != nil {
		return err
	}
	return f.run(ctx, tx, f.fold)
}

// run executes statements one by one, by a protocol that allows one statement only.
func (f *SQLFile) run(ctx context.Context, tx pgx.Tx, list []statement) error {
	for _, s := range list {
		if _, err := tx.Exec(ctx, s.sql, pgx.QueryExecModeExec); err != nil {
			return f.explain(s, err)
		}
	}
	return nil
}

// explain adds the position in the file to an error of PostgreSQL.
func (f *SQLFile) explain(s statement, err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	line := s.line
	if pg.Position > 0 { // in characters, from 1
		seen := int32(0)
		for _, r := range s.sql {
			if seen++; seen >= pg.Position {
				break
			}
			if r == '\n' {
				line++
			}
		}
	}
	problem := fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code)
	for _, more := range []string{pg.Detail, pg.Hint} {
		if more != "" {
			problem += "; " + strings.TrimSuffix(more, ".")
		}
	}
	if where, _, _ := strings.Cut(pg.Where, "\n"); where != "" {
		problem += "; in " + where
	}
	return &SyntaxError{File: f.file, Line: line, Problem: problem, Err: err}
}
