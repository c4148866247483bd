package rebuild

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
)

// Who owns the live tables, and what we may do.
//
// $1 = the live schema
const rightsSQL = `
SELECT current_user::text, current_database()::text, coalesce(pg_get_userbyid(s.nspowner)::text, current_user::text),
       coalesce(pg_has_role(current_user, s.nspowner, 'MEMBER'), true),
       (SELECT rolsuper FROM pg_roles WHERE rolname = session_user),
       has_database_privilege(coalesce(s.nspowner, (SELECT oid FROM pg_roles WHERE rolname = current_user)), d.oid, 'CREATE')
FROM pg_database d LEFT JOIN pg_namespace s ON s.nspname = $1 WHERE d.datname = current_database()`

// rights returns the role to work as: the owner of the live tables, so that a role that may use them may use the new
// ones. Errors of kind ErrRefused name the GRANT that is missing.
func rights(ctx context.Context, conn *pgx.Conn) (owner string, super bool, err error) {
	var me, database string
	var member, create bool
	if err := conn.QueryRow(ctx, rightsSQL, schema.Name).Scan(&me, &database, &owner, &member, &super, &create); err != nil {
		return "", false, fmt.Errorf("reading the rights of the role: %w", err)
	}
	quoted := func(name string) string { return pgx.Identifier{name}.Sanitize() }
	switch {
	case !member:
		return "", false, refuse("role %s does not own schema scrip; run this as %s, or have its owner run: GRANT %s TO %s", me, owner, quoted(owner), quoted(me))
	case !create:
		return "", false, refuse("role %s may not create schemas in database %s; have the owner of the database run: GRANT CREATE ON DATABASE %s TO %s",
			owner, database, quoted(database), quoted(owner))
	}
	return owner, super, nil
}

// setRole switches a connection to the owner's role, so that the owner owns all it creates.
func setRole(ctx context.Context, conn *pgx.Conn, owner string) error {
	_, err := conn.Exec(ctx, "SET ROLE "+pgx.Identifier{owner}.Sanitize())
	return err
}

// Lists the grants on the tables in use as GRANT statements for the new ones: on the schema, its relations, their columns and its functions. $1 = from   $2 = to
const grantsSQL = `
SELECT format('GRANT %s ON SCHEMA %I TO %s%s', a.privilege_type, $2::text, g.name, g.option)
FROM pg_namespace s, aclexplode(s.nspacl) a,
     LATERAL (SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS name,
                     CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option) g
WHERE s.nspname = $1 AND a.grantee <> s.nspowner
UNION ALL
SELECT format('GRANT %s ON TABLE %I.%I TO %s%s', a.privilege_type, $2::text, c.relname, g.name, g.option)
FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace, aclexplode(c.relacl) a,
     LATERAL (SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS name,
                     CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option) g
WHERE s.nspname = $1 AND a.grantee <> c.relowner AND to_regclass(format('%I.%I', $2::text, c.relname)) IS NOT NULL
UNION ALL
SELECT format('GRANT %s (%I) ON TABLE %I.%I TO %s%s', a.privilege_type, t.attname, $2::text, c.relname, g.name, g.option)
FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace JOIN pg_attribute t ON t.attrelid = c.oid AND NOT t.attisdropped,
     aclexplode(t.attacl) a,
     LATERAL (SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS name,
                     CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option) g
WHERE s.nspname = $1 AND EXISTS (SELECT 1 FROM pg_attribute x WHERE x.attrelid = to_regclass(format('%I.%I', $2::text, c.relname))
                                   AND x.attname = t.attname AND NOT x.attisdropped)
UNION ALL
SELECT format('REVOKE ALL ON FUNCTION %I.%I() FROM PUBLIC', $2::text, p.proname)
FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace
WHERE s.nspname = $1 AND p.proacl IS NOT NULL AND p.pronargs = 0 AND to_regprocedure(format('%I.%I()', $2::text, p.proname)) IS NOT NULL
UNION ALL
SELECT format('GRANT %s ON FUNCTION %I.%I() TO %s%s', a.privilege_type, $2::text, p.proname, g.name, g.option)
FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace, aclexplode(p.proacl) a,
     LATERAL (SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS name,
                     CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option) g
WHERE s.nspname = $1 AND a.grantee <> p.proowner AND p.pronargs = 0 AND to_regprocedure(format('%I.%I()', $2::text, p.proname)) IS NOT NULL`

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
