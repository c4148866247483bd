package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/pgd"
	"github.com/seed-4a2410e3/scrip/projections/segments"
)

// trial is the schema that is made to try rights, in a transaction that is rolled back.
const trial = "scrip_doctor_trial"

// postgresURL is the PostgreSQL to examine, "" if there is none yet: the private one of a server that does not run.
func (v *visit) postgresURL() string { return cmp.Or(v.Postgres, ifRunning(v, v.server.PostgresURL)) }

func (v *visit) postgres(ctx context.Context) []Finding {
	if v.postgresURL() == "" {
		if v.running {
			return good("the server runs without PostgreSQL")
		}
		found, err := pgd.Find()
		if err != nil {
			return bad(Fail, "run docker/setup.sh, set SCRIP_PG_BIN, give --postgres URL, or start without tables: --roles lanes,scheduler,api", "%v", err)
		}
		return good("%s in %s, for a private cluster", found.Version, found.Dir)
	}
	ctx, cancel := context.WithTimeout(ctx, v.wait)
	defer cancel()
	db, err := pgx.Connect(ctx, v.postgresURL())
	if err != nil {
		return bad(Fail, "start it, or give another URL with --postgres; claims do not need it", "connecting to PostgreSQL: %v", err)
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was changed
	return examine(ctx, db)
}

// examine looks at version, encoding, rights and settings.
func examine(ctx context.Context, db *pgx.Conn) (all []Finding) {
	var number int
	var version, encoding, role, database string
	var create, temporary bool
	err := db.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_encoding_to_char(d.encoding), r.rolname, d.datname,
       has_database_privilege(d.datname, 'CREATE'), has_database_privilege(d.datname, 'TEMPORARY')
  FROM pg_database d, pg_roles r WHERE d.datname = current_database() AND r.rolname = current_user`).
		Scan(&number, &version, &encoding, &role, &database, &create, &temporary)
	if err != nil {
		return bad(Fail, "connect to PostgreSQL itself, as an ordinary role", "reading version and rights: %v", err)
	}
	if number/10000 < pgd.MinMajor {
		all = append(all, bad(Fail, "upgrade it", "PostgreSQL %s; %d or later is needed", version, pgd.MinMajor)...)
	} else {
		all = append(all, good("PostgreSQL %s, database %s", version, database)...)
	}
	if encoding != "UTF8" {
		all = append(all, bad(Fail, "make another database: CREATE DATABASE scrip ENCODING 'UTF8' TEMPLATE template0", "database %s has encoding %s; UTF8 is needed", database, encoding)...)
	}
	grant := fmt.Sprintf("GRANT CREATE, TEMPORARY ON DATABASE %s TO %s", pgx.Identifier{database}.Sanitize(), pgx.Identifier{role}.Sanitize())
	switch err := try(ctx, db); {
	case !create || !temporary:
		all = append(all, bad(Fail, grant, "role %s may not make schemas or temporary tables in database %s", role, database)...)
	case err != nil:
		all = append(all, bad(Fail, "see its log", "making a schema and a table, to try: %v", err)...)
	default:
		all = append(all, good("role %s may make schemas and temporary tables", role)...)
	}
	loose, err := segments.Bounds(ctx, db)
	switch {
	case err != nil:
		all = append(all, bad(Warn, "see its log", "%v", err)...)
	case len(loose) == 0:
		all = append(all, good("its settings bound readers")...)
	}
	for _, one := range loose {
		all = append(all, bad(Warn, one.Fix, "%s", one.What)...)
	}
	return all
}

// try makes what the read tables are made of, and rolls it back.
func try(ctx context.Context, db *pgx.Conn) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "CREATE SCHEMA "+trial+"; CREATE TABLE "+trial+".t (id int); CREATE TEMPORARY TABLE "+trial+" (id int)")
	return errors.Join(err, tx.Rollback(ctx))
}
