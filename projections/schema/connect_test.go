package schema

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// A role that may create objects in schema public (every role, in databases of PostgreSQL 14 and before) defines an
// operator that fits better than PostgreSQL's own: it is not used, even if search_path of the role, the database or the
// URL includes public.
func TestOperatorsOfOthersAreNotUsed(t *testing.T) {
	database := projtest.URL(t)
	p := projtest.Pool(t, database)
	exec(t, p, "GRANT CREATE ON SCHEMA public TO PUBLIC")
	mallory := projtest.Pool(t, projtest.Role(t, database, "mallory"))
	exec(t, mallory, "CREATE FUNCTION public.times(bigint, interval) RETURNS interval LANGUAGE sql AS $$ SELECT interval '1 year' $$; "+
		"CREATE OPERATOR public.* (LEFTARG = bigint, RIGHTARG = interval, FUNCTION = public.times)")
	exec(t, p, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public', current_database()); END $$")

	u, err := url.Parse(database)
	streamtest.Must(t, err)
	q := u.Query()
	q.Set("search_path", "public")
	q.Set("client_encoding", "LATIN1")
	u.RawQuery = q.Encode()
	conn, err := Connect(t.Context(), u.String())
	streamtest.Must(t, err)
	defer conn.Close(t.Context())
	var product, encoding string
	if err := conn.QueryRow(t.Context(), "SELECT (2::bigint * interval '1 hour')::text, current_setting('client_encoding')").Scan(&product, &encoding); err != nil {
		t.Fatal(err)
	}
	if product != "02:00:00" || encoding != "UTF8" {
		t.Errorf("2 * 1 hour is %s, in %s", product, encoding)
	}
	// The tables are made, and a temporary one is found, without public.
	config, err := pgxpool.ParseConfig(u.String())
	streamtest.Must(t, err)
	Pin(config.ConnConfig)
	pinned, err := pgxpool.NewWithConfig(t.Context(), config)
	streamtest.Must(t, err)
	defer pinned.Close()
	ensured(t, pinned)
	exec(t, pinned, "CREATE TEMPORARY TABLE mine (n int); INSERT INTO mine VALUES (1)")
}

// A database that cannot hold every name is refused before anything is made in it.
func TestOtherEncodingsAreRefused(t *testing.T) {
	database := projtest.URL(t)
	p := projtest.Pool(t, database)
	var latin string
	streamtest.Must(t, p.QueryRow(t.Context(), "SELECT current_database() || '_latin'").Scan(&latin))
	exec(t, p, "CREATE DATABASE "+latin+" ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	u, err := url.Parse(database)
	streamtest.Must(t, err)
	u.Path = "/" + latin
	pool, err := pgxpool.New(t.Context(), u.String())
	streamtest.Must(t, err)
	_, err = Ensure(t.Context(), pool, quiet)
	pool.Close()
	if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "LATIN1") || !strings.Contains(err.Error(), "ENCODING 'UTF8'") {
		t.Errorf("error %v", err)
	}
	exec(t, p, "DROP DATABASE "+latin+" WITH (FORCE)")
}
