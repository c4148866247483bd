package schema

import (
	"context"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Name is the schema of the read tables. Shadow, copied and previous tables are in other schemas.
const Name = "scrip"

// named finds the schema's name in migrations and function bodies; scrip_meta is another word.
var named = regexp.MustCompile(`\bscrip\b`)

// Version returns the newest migration of this program, which is that of tables made by Create.
func Version() int64 { return latest() }

// Create creates the read tables of this program, empty and with all indexes, in a schema of another name, which must
// not exist. The name needs no quotes. It runs the migrations with the other name in them, so the tables equal those of
// Migrate; a migration therefore names no other schema. The state of migrations does not change.
func Create(ctx context.Context, tx pgx.Tx, name string) error {
	return CreateVersion(ctx, tx, name, Version())
}

// CreateVersion is Create with the tables as they were after an older migration.
func CreateVersion(ctx context.Context, tx pgx.Tx, name string, version int64) error {
	if _, err := tx.Exec(ctx, "CREATE SCHEMA "+name); err != nil {
		return fmt.Errorf("creating schema %s: %w", name, allowed(err))
	}
	files, err := fs.Glob(migrations, "migrations/*.sql") // sorted
	if err != nil {
		return err
	}
	for _, file := range files[:min(max(version, 0), int64(len(files)))] {
		text, err := fs.ReadFile(migrations, file)
		if err != nil {
			return err
		}
		_, up, _ := strings.Cut(string(text), "-- +goose Up")
		up, _, _ = strings.Cut(up, "-- +goose Down")
		// Many statements at once: the simple protocol.
		if err := tx.Conn().PgConn().Exec(ctx, named.ReplaceAllLiteralString(up, name)).Close(); err != nil {
			return fmt.Errorf("creating the tables of schema %s (%s): %w", name, file, allowed(err))
		}
	}
	return nil
}

// functions are those of the migrations; schema scrip may have others beside them.
var functions = []string{"backlog", "digest", "due_next_hour"}

// $1 = schema   $2 = functions
const functionsSQL = `
SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid) FROM pg_proc p
JOIN pg_namespace s ON s.oid = p.pronamespace WHERE s.nspname = $1 AND p.prokind = 'f' AND p.proname = ANY($2)`

// Rename gives a schema made by Migrate or Create another name. Tables, indexes and the view move with the schema;
// functions name their schema in their text and are created again.
func Rename(ctx context.Context, tx pgx.Tx, from, to string) error {
	rows, err := tx.Query(ctx, functionsSQL, from, functions)
	if err != nil {
		return fmt.Errorf("renaming schema %s: %w", from, err)
	}
	type function struct{ Name, Text string }
	functions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
	if err != nil {
		return fmt.Errorf("renaming schema %s: %w", from, err)
	}
	if _, err := tx.Exec(ctx, "ALTER SCHEMA "+from+" RENAME TO "+to); err != nil {
		return fmt.Errorf("renaming schema %s to %s: %w", from, to, err)
	}
	own := regexp.MustCompile(`\b` + from + `\b`)
	for _, f := range functions {
		if _, err := tx.Exec(ctx, own.ReplaceAllLiteralString(f.Text, to)); err != nil {
			return fmt.Errorf("renaming schema %s to %s: %s: %w", from, to, f.Name, err)
		}
	}
	return nil
}
