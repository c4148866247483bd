package confine

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// TooMuchError: the caller's role may write the read tables and may not create roles, so that a projection with its
// rights could write them.
type TooMuchError struct{ Role string }

func (e *TooMuchError) Error() string {
	me := pgx.Identifier{e.Role}.Sanitize()
	return fmt.Sprintf("a projection runs as a role of its own, which may write only its schema, and role %[1]s may not create roles. "+
		"Have an administrator of the database run: ALTER ROLE %[2]s CREATEROLE. "+
		"Or have one create a role for projections, and give its URL with --postgres: "+
		"CREATE ROLE projections LOGIN PASSWORD '…'; GRANT CREATE, TEMPORARY ON DATABASE … TO projections; "+
		"GRANT USAGE ON SCHEMA scrip TO projections; GRANT SELECT ON ALL TABLES IN SCHEMA scrip TO projections", e.Role, me)
}

// AnalystError: the caller has an analyst's key, which only reads in the PostgreSQL of the read tables.
type AnalystError struct{ Role string }

func (e *AnalystError) Error() string {
	return fmt.Sprintf("%s is the user of an analyst's key, which only reads here. A projection of yours goes into a PostgreSQL of yours: "+
		"give its URL with --postgres, and the key with --key-file. For one in this PostgreSQL give the file, with the line "+
		"-- scrip: readers analyst, to an operator. ANALYSTS.md shows both", e.Role)
}

// Whether the function exists and belongs to a superuser (another role's would run with the caller's rights), and the
// rights of the caller's role.
const lookSQL = `
SELECT session_user::text,
       EXISTS (SELECT FROM pg_proc f JOIN pg_namespace s ON s.oid = f.pronamespace JOIN pg_roles o ON o.oid = f.proowner
               WHERE s.nspname = '` + Schema + `' AND f.proname = 'projection' AND f.proargtypes = '25 25'::oidvector AND o.rolsuper AND f.prosecdef
                 AND has_schema_privilege(s.oid, 'USAGE') AND has_function_privilege(f.oid, 'EXECUTE')),
       r.rolsuper OR r.rolcreaterole,
       coalesce((SELECT pg_has_role(nspowner, 'USAGE') OR has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = 'scrip'), false)
       OR coalesce((SELECT bool_or(has_table_privilege(oid, 'INSERT') OR has_table_privilege(oid, 'UPDATE') OR has_table_privilege(oid, 'DELETE'))
                    FROM pg_class WHERE relnamespace = to_regnamespace('scrip') AND relkind = 'v'), false),
       EXISTS (SELECT FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
               WHERE m.member = r.oid AND g.rolname = left(current_database(), 40) || '_analyst') AND r.rolname ~ '^analyst_'
FROM pg_roles r WHERE r.rolname = session_user`

// Open creates the role of a schema, or gives it a new password, creates the schema if it does not exist, and connects
// as the role. conn is the caller's connection, and base its configuration.
//
// A caller that may not create roles uses its own connection, if its rights do not include writing the read tables:
// then the result is nil, nil. Otherwise the error is a *TooMuchError, and an *AnalystError for the user of an analyst's key.
func Open(ctx context.Context, conn *pgx.Conn, base *pgx.ConnConfig, schema string) (*pgx.Conn, error) {
	var me string
	var function, mayMake, mayWrite, analyst bool
	if err := conn.QueryRow(ctx, lookSQL).Scan(&me, &function, &mayMake, &mayWrite, &analyst); err != nil {
		return nil, err
	}
	if analyst {
		return nil, &AnalystError{Role: me}
	}
	if !function && !mayMake {
		if mayWrite {
			return nil, &TooMuchError{Role: me}
		}
		return nil, nil
	}
	// Callers at the same time set the role's password one after the other, and change the same rows of the catalog: one that finds
	// another password than its own, or rows that have changed, begins again. There is no lock that another session could hold.
	return backoff.Retry(ctx, func() (*pgx.Conn, error) {
		config := base.Copy()
		var err error
		if config.User, config.Password, err = makeRole(ctx, conn, function, schema); err != nil {
			return nil, again(err, "23505", "42710", "42P06", "XX000", "40P01")
		}
		as, err := pgx.ConnectConfig(ctx, config)
		if pg := new(pgconn.PgError); errors.As(err, &pg) && strings.HasPrefix(pg.Code, "28") {
			err = fmt.Errorf("role %s was created for projection %s and cannot log in: %w; allow it in pg_hba.conf, or in the connection pooler", config.User, schema, err)
		}
		return as, again(err, "28P01")
	}, backoff.WithBackOff(&backoff.ExponentialBackOff{InitialInterval: 20 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 1.5, MaxInterval: time.Second}),
		backoff.WithMaxTries(tries))
}

// tries are many more than callers at a time: in each round one of them succeeds.
const tries = 15

// again makes an error final unless it has one of these states: unique_violation, duplicate_object, duplicate_schema,
// internal_error (tuple concurrently updated), deadlock_detected; invalid_password.
func again(err error, states ...string) error {
	if pg := new(pgconn.PgError); err == nil || errors.As(err, &pg) && slices.Contains(states, pg.Code) {
		return err
	}
	return backoff.Permanent(err)
}

// makeRole makes the role of a schema, with a new password.
func makeRole(ctx context.Context, conn *pgx.Conn, function bool, schema string) (name, password string, err error) {
	password = rand.Text()
	if function {
		err = conn.QueryRow(ctx, "SELECT "+Schema+".projection($1, $2)", schema, password).Scan(&name)
		return name, password, err
	}
	// The same statements with the caller's rights: a function that exists in this transaction only.
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "CREATE OR REPLACE FUNCTION pg_temp.scrip_projection(wanted text, secret text) RETURNS text LANGUAGE plpgsql "+
			"SET search_path = pg_catalog, pg_temp AS $confine$"+filled(roleSQL, false, "", "")+"$confine$")
		if err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "SELECT pg_temp.scrip_projection($1, $2)", schema, password).Scan(&name); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DROP FUNCTION pg_temp.scrip_projection(text, text)")
		return err
	})
	return name, password, err
}

//go:embed empty.sql
var emptySQL string

// Empty returns a statement that drops everything in a schema, but not the schema itself; for its owner.
func Empty(schema string) string {
	return strings.ReplaceAll(emptySQL, "{{schema}}", pgx.Identifier{schema}.Sanitize())
}
