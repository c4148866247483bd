package rebuild

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestReadersMeetExchanges: a transaction that has read one view, and wants another that an exchange has locked, which
// waits for the first one: nobody is ended, and the exchange happens later. Not parallel, since it changes waits: as in
// production, an attempt may wait for longer than PostgreSQL waits before it looks for such deadlocks.
func TestReadersMeetExchanges(t *testing.T) {
	was := waits
	defer func() { waits = was }()
	waits.lock = 700 * time.Millisecond
	r := newRig(t)
	_, err := projtest.Pool(t, projtest.Admin(t, r.URL)).Exec(t.Context(), "ALTER DATABASE "+r.text("SELECT current_database()::text")+" SET deadlock_timeout = '600ms'")
	streamtest.Must(t, err)
	r.Pool.Reset()
	r.project()
	r.Work()
	r.synced()
	r.rebuild(Options{})
	s := r.open(Options{})
	defer s.Close()
	for name, exchange := range map[string]func() error{
		"undo":    func() error { return s.Undo(t.Context()) },
		"rebuild": func() error { _, err := s.Rebuild(t.Context()); return err },
	} {
		pool := projtest.Pool(t, r.URL)
		tx, err := pool.Begin(t.Context())
		streamtest.Must(t, err)
		_, err = tx.Exec(t.Context(), "SELECT count(*) FROM scrip.campaign")
		streamtest.Must(t, err)
		read := make(chan error, 1)
		go func() {
			streamtest.Eventually(t, "the exchange waits for the reader", func() (waits bool) {
				err := pool.QueryRow(context.Background(), `SELECT EXISTS (SELECT FROM pg_locks
					WHERE NOT granted AND mode = 'AccessExclusiveLock' AND relation = 'scrip.campaign'::regclass)`).Scan(&waits)
				return err == nil && waits
			})
			_, err := tx.Exec(context.Background(), "SELECT count(*) FROM scrip.coupon")
			read <- errors.Join(err, tx.Rollback(context.Background()))
		}()
		if err := exchange(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := <-read; err != nil {
			t.Errorf("%s: its reader: %v", name, err)
		}
	}

	// One that has read coupons goes on to other views meanwhile: an exchange locks coupons first.
	pool := projtest.Pool(t, r.URL)
	tx, err := pool.Begin(t.Context())
	streamtest.Must(t, err)
	_, err = tx.Exec(t.Context(), "SELECT count(*) FROM scrip.coupon")
	streamtest.Must(t, err)
	locked := make(chan []string, 1)
	go func() {
		var others []string
		streamtest.Eventually(t, "the exchange waits for the reader", func() (waits bool) {
			err := pool.QueryRow(context.Background(), `SELECT coalesce(bool_or(NOT granted AND relation = 'scrip.coupon'::regclass), false),
				coalesce(array_agg(relation::regclass::text) FILTER (WHERE granted), '{}') FROM pg_locks l JOIN pg_class c ON c.oid = relation
				WHERE mode = 'AccessExclusiveLock' AND relkind = 'v'`).Scan(&waits, &others)
			return err == nil && waits
		})
		_ = tx.Rollback(context.Background())
		locked <- others
	}()
	streamtest.Must(t, s.Undo(t.Context()))
	streamtest.Equal(t, "views that are locked before", strings.Join(<-locked, " "), "")

	r.Claim(0, 1)
	r.Claim(1, 1)
	r.synced()
	streamtest.Equal(t, "tables are not the fold of the log", r.digest(), r.folded())
}
