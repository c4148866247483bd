package confine_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestManyOpenAtOnce: each logs in with its own password although all set that of one role, and no lock is needed which another
// session could hold.
func TestManyOpenAtOnce(t *testing.T) {
	url := projtest.URL(t)
	projtest.SessionLocks(t, url)
	admin := projtest.Pool(t, projtest.Admin(t, url))
	as := projtest.Role(t, url, "opener")
	execute := func(sql string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), sql)
		streamtest.Must(t, err)
	}
	execute("ALTER ROLE opener CREATEROLE")
	execute("DO $$ BEGIN EXECUTE format('GRANT CREATE, TEMPORARY ON DATABASE %I TO opener', current_database()); END $$")
	var role string
	t.Cleanup(func() { // before the role that is its member
		if role == "" {
			return
		}
		_, err := admin.Exec(context.Background(), "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role)
		streamtest.Must(t, err)
	})
	config, err := pgx.ParseConfig(as)
	streamtest.Must(t, err)
	var all sync.WaitGroup
	roles, errs := make([]string, 5), make([]error, 5)
	for i := range errs {
		all.Go(func() {
			conn, err := pgx.ConnectConfig(t.Context(), config)
			if err != nil {
				errs[i] = err
				return
			}
			defer conn.Close(context.Background()) //nolint:errcheck
			own, err := confine.Open(t.Context(), conn, config, "together")
			if err != nil {
				errs[i] = err
				return
			}
			errs[i] = errors.Join(own.QueryRow(t.Context(), "SELECT session_user::text").Scan(&roles[i]), own.Close(t.Context()))
		})
	}
	all.Wait()
	streamtest.Must(t, errors.Join(errs...))
	for _, role = range roles {
		streamtest.Equal(t, "role", role, roles[0])
	}
}
