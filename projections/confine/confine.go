package confine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const passwordBytes = 24

// Role is a login that may work on one schema.
type Role struct{ Name, Password string }

// TooMuchError: whoever asks may write the read tables and may make no roles, so that nothing would keep a projection
// from them.
type TooMuchError struct{ Role string }

func (e *TooMuchError) Error() string {
	me := pgx.Identifier{e.Role}.Sanitize()
	return fmt.Sprintf("a projection runs as a role of its own, which may write its schema only, and role %[1]s may make no roles. "+
		"Have an administrator of the database run: ALTER ROLE %[2]s CREATEROLE. "+
		"Or have one make a role for projections, and give its URL with --postgres: "+
		"CREATE ROLE projections LOGIN PASSWORD '…'; GRANT CREATE, TEMPORARY ON DATABASE … TO projections; "+
		"GRANT USAGE ON SCHEMA scrip TO projections; GRANT SELECT ON ALL TABLES IN SCHEMA scrip TO projections", e.Role, me)
}

// What may be done here: whether there is the function, made by a superuser and not by somebody who wants it to run with our
// rights, and the rights of the role that asks.
const lookSQL = `
SELECT session_user::text,
       EXISTS (SELECT FROM pg_proc f JOIN pg_namespace s ON s.oid = f.pronamespace JOIN pg_roles o ON o.oid = f.proowner
               WHERE s.nspname = '` + Schema + `' AND f.proname = 'projection' AND f.proargtypes = '25 25'::oidvector AND o.rolsuper AND f.prosecdef
                 AND has_schema_privilege(s.oid, 'USAGE') AND has_function_privilege(f.oid, 'EXECUTE')),
       r.rolsuper OR r.rolcreaterole,
       coalesce((SELECT pg_has_role(nspowner, 'USAGE') OR has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = 'scrip'), false)
       OR coalesce((SELECT bool_or(has_table_privilege(oid, 'INSERT') OR has_table_privilege(oid, 'UPDATE') OR has_table_privilege(oid, 'DELETE'))
                    FROM pg_class WHERE relnamespace = to_regnamespace('scrip') AND relkind IN ('r', 'p')), false)
FROM pg_roles r WHERE r.rolname = session_user`

// Open makes the role of a schema, or gives it a new password, makes the schema where there is none, and connects as the
// role. conn is the connection of whoever asks, and base says how it was made.
//
// A role that may make no roles itself works as before, with its own rights, if those do not reach the read tables; then
// the result is nil, nil. Otherwise the error is a *TooMuchError.
func Open(ctx context.Context, conn *pgx.Conn, base *pgx.ConnConfig, schema string) (*pgx.Conn, error) {
	var me string
	var function, mayMake, mayWrite bool
	if err := conn.QueryRow(ctx, lookSQL).Scan(&me, &function, &mayMake, &mayWrite); err != nil {
		return nil, err
	}
	if !function && !mayMake {
		if mayWrite {
			return nil, &TooMuchError{Role: me}
		}
		return nil, nil
	}
	// Two that begin at once give the role a password each: the other one waits until this one has used its own.
	const lockSQL, unlockSQL = "SELECT pg_advisory_lock(hashtextextended('scrip confine login ' || $1, 0))", "SELECT pg_advisory_unlock(hashtextextended('scrip confine login ' || $1, 0))"
	if _, err := conn.Exec(ctx, lockSQL, schema); err != nil {
		return nil, err
	}
	defer func() { _, _ = conn.Exec(context.WithoutCancel(ctx), unlockSQL, schema) }() // or the connection is gone, and the lock with it
	role, err := makeRole(ctx, conn, function, schema)
	if err != nil {
		return nil, err
	}
	config := base.Copy()
	config.User, config.Password = role.Name, role.Password
	as, err := pgx.ConnectConfig(ctx, config)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code[:2] == "28" {
		return nil, fmt.Errorf("role %s was made for projection %s and may not log in: %w; let it in, by pg_hba.conf or where connections are pooled", role.Name, schema, err)
	}
	return as, err
}

func makeRole(ctx context.Context, conn *pgx.Conn, function bool, schema string) (Role, error) {
	raw := make([]byte, passwordBytes)
	if _, err := rand.Read(raw); err != nil {
		return Role{}, err
	}
	role := Role{Password: hex.EncodeToString(raw)}
	if function {
		return role, conn.QueryRow(ctx, "SELECT "+Schema+".projection($1, $2)", schema, role.Password).Scan(&role.Name)
	}
	// The same statements with the rights of whoever asks: a function for the time of this transaction.
	return role, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "CREATE OR REPLACE FUNCTION pg_temp.scrip_projection(wanted text, secret text) RETURNS text LANGUAGE plpgsql "+
			"SET search_path = pg_catalog, pg_temp AS $confine$"+bodySQL()+"$confine$")
		if err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "SELECT pg_temp.scrip_projection($1, $2)", schema, role.Password).Scan(&role.Name); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DROP FUNCTION pg_temp.scrip_projection(text, text)")
		return err
	})
}
