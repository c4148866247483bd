package schema

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestReadersMeetUse: a statement that has locked a view, and not yet one that it consists of, and the tables that are
// exchanged then, do not wait for each other. PostgreSQL would look for that at once here.
func TestReadersMeetUse(t *testing.T) {
	was := tries
	defer func() { tries = was }()
	tries = tries[len(tries)-1:] // the longest alone
	p := pool(t)
	ensured(t, p)
	exec(t, projtest.Pool(t, projtest.Admin(t, p.Config().ConnString())), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''10ms''', current_database()); END $$`)
	p.Reset()
	waiting := func(query string) {
		t.Helper()
		streamtest.Eventually(t, query+" waits", func() (waits bool) {
			streamtest.Must(t, p.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1)`, query+"%").Scan(&waits))
			return waits
		})
	}
	for _, meets := range []struct{ view, of string }{
		{"coupon", "coupon_row"}, {"coupon", "campaign"}, {"redemption", "redemption_row"}, {"lag", "checkpoint"},
	} {
		held, err := p.Begin(t.Context())
		streamtest.Must(t, err)
		t.Cleanup(func() { _ = held.Rollback(context.Background()) })
		_, err = held.Exec(t.Context(), "ALTER VIEW scrip."+meets.of+" RESET (security_barrier)")
		streamtest.Must(t, err)
		read, used := make(chan error, 1), make(chan error, 1)
		sql := "SELECT count(*) FROM scrip." + meets.view
		go func() {
			_, err := p.Exec(t.Context(), sql)
			read <- err
		}()
		waiting(sql)
		go func() { used <- replace(t, p) }()
		waiting("SAVEPOINT try; SET LOCAL statement_timeout = ")
		streamtest.Must(t, held.Rollback(t.Context()))
		if read, used := <-read, <-used; read != nil || used != nil {
			t.Errorf("scrip.%s, which has not locked scrip.%s: read %v, exchanged %v", meets.view, meets.of, read, used)
		}
	}
	if n := fmt.Sprint(query(t, p, "SELECT live::text FROM scrip_meta.format")); n != "[scrip_5]" {
		t.Errorf("in use is %s", n)
	}
}
