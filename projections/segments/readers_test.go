package segments

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// connect makes a connection of a role until the end of the test.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	streamtest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func scalar(t *testing.T, db schema.Querier, sql string) (text string) {
	t.Helper()
	streamtest.Must(t, db.QueryRow(t.Context(), sql).Scan(&text))
	return text
}

func (r *rig) exec(sql string) {
	r.t.Helper()
	_, err := r.pool.Exec(r.t.Context(), sql)
	streamtest.Must(r.t, err)
}

// An old snapshot keeps all that it sees, also if it reads coupons for the first time after they were merged, and is that of
// another role. It delays nothing but that tables are dropped, and that is counted.
func TestSnapshotKeepsWhatItSees(t *testing.T) {
	r := newRig(t)
	r.sealed(9)
	s := r.open(Options{})
	if n, known := s.Overdue(); known {
		t.Errorf("before the first look %d are overdue", n)
	}
	reader := connect(t, projtest.Role(t, r.url, "analyst_"+r.text("SELECT current_database()")))
	r.exec("GRANT USAGE ON SCHEMA scrip, scrip_meta TO PUBLIC; GRANT SELECT ON ALL TABLES IN SCHEMA scrip TO PUBLIC")
	tx, err := reader.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	streamtest.Must(t, err)
	var claimed, rows int
	streamtest.Must(t, tx.QueryRow(t.Context(), "SELECT claimed FROM scrip.campaign WHERE campaign = 'c0'").Scan(&claimed))

	streamtest.Must(t, s.mergeSome(t.Context()))
	streamtest.Equal(t, "live segments: 0, one that was not merged, and a merged one", r.text(live), "3")
	r.exec("UPDATE scrip_1.segment SET merged_at = merged_at - interval '6 minutes'")
	streamtest.Must(t, s.remove(t.Context()))
	streamtest.Must(t, s.tend(t.Context()))
	if n, known := s.Overdue(); n != 8 || !known {
		t.Errorf("%d are overdue (%t)", n, known)
	}
	r.whole()
	streamtest.Must(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM scrip.coupon WHERE campaign = 'c0'").Scan(&rows))
	streamtest.Equal(t, "coupons in the snapshot", rows, claimed)
	streamtest.Must(t, tx.Rollback(t.Context()))
	streamtest.Must(t, s.remove(t.Context()))
	streamtest.Equal(t, "after the next look, all are dropped", r.text(allDropped), "true")
	r.whole()
}

// A statement that was planned before a copy was one of the tables reads the sources, however late it takes its snapshot.
func TestStatementIsPlannedBeforeTheCopy(t *testing.T) {
	r := newRig(t)
	s := r.sealed(9)
	// PostgreSQL calls it while it plans, after it has listed the tables.
	r.exec("CREATE TABLE public.gate (); " +
		"CREATE FUNCTION public.low() RETURNS bigint LANGUAGE plpgsql STABLE AS $$ BEGIN PERFORM FROM public.gate; RETURN 0; END $$")
	gate, err := connect(t, r.url).Begin(t.Context())
	streamtest.Must(t, err)
	_, err = gate.Exec(t.Context(), "LOCK TABLE public.gate IN ACCESS EXCLUSIVE MODE")
	streamtest.Must(t, err)
	reader, read := connect(t, r.url), make(chan string, 1)
	go func() {
		var n int
		err := reader.QueryRow(t.Context(), "SELECT count(*) FROM scrip.coupon WHERE campaign = 'c0' AND n > public.low()", pgx.QueryExecModeSimpleProtocol).Scan(&n)
		read <- fmt.Sprint(n, " ", err)
	}()
	r.until("it is being planned", "SELECT count(*)::text FROM pg_locks WHERE NOT granted AND relation = 'public.gate'::regclass AND database = (SELECT oid FROM pg_database WHERE datname = current_database())", "1")
	streamtest.Must(t, s.mergeSome(t.Context()))
	streamtest.Must(t, s.swap(t.Context()))
	streamtest.Must(t, gate.Rollback(t.Context()))
	streamtest.Equal(t, "the reader's coupons", <-read, "810 <nil>")
	r.whole()
	streamtest.Equal(t, "live segments meanwhile", r.text(live), "10")
	streamtest.Must(t, s.swap(t.Context()))
	streamtest.Equal(t, "live segments after it", r.text(live), "3")
	r.whole()
}

// Readers that overlap, so that at any time one has a snapshot and has read coupons, keep no merged segment for long, and wait for
// nothing.
func TestReadersThatOverlap(t *testing.T) {
	r := newRig(t)
	s := r.sealed(9)
	var longest atomic.Int64
	conns := []*pgx.Conn{connect(t, r.url), connect(t, r.url)}
	stop := streamtest.Background(t, func(ctx context.Context) error {
		var open pgx.Tx
		for i := 0; ; i++ {
			began := time.Now()
			tx, err := conns[i%2].BeginTx(context.WithoutCancel(ctx), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			if err == nil {
				err = r.read(context.WithoutCancel(ctx), tx)
			}
			longest.Store(max(longest.Load(), int64(time.Since(began))))
			if open != nil {
				_ = open.Rollback(context.WithoutCancel(ctx))
			}
			if err != nil || ctx.Err() != nil {
				return err
			}
			open = tx
		}
	})
	s.calm()
	r.run(s)
	r.until("merged and dropped", "SELECT (("+allDropped+") || ' ' || ("+live+"))", "true 3")
	stop()
	if took := time.Duration(longest.Load()); took > time.Second {
		t.Errorf("a read took %v", took)
	}
	r.whole()
}

// Transactions of other databases count.
const later = "SELECT (pg_snapshot_xmin(pg_current_snapshot()) > (SELECT max(merged_by::text::bigint)::text::xid8 FROM scrip_1.segment))::text"

const detaching = "SELECT count(*)::text FROM pg_inherits WHERE inhdetachpending"

// A reader that is idle in its transaction keeps one merged segment that it has read from being dropped, and the others with it. It
// delays no reader and no writer, also if the process that waits for it dies. The next one goes on when it has ended.
func TestIdleReader(t *testing.T) {
	r := newRig(t)
	s := r.sealed(9)
	streamtest.Must(t, s.mergeSome(t.Context()))
	r.until("snapshots are later than the merge", later, "true")
	idle, err := connect(t, r.url).Begin(t.Context())
	streamtest.Must(t, err)
	streamtest.Must(t, r.read(t.Context(), idle))
	die := streamtest.Background(t, func(ctx context.Context) error { return s.each(ctx, s.remove) })
	r.until("it waits for the reader", detaching, "1")
	r.whole()
	die()
	r.until("sessions at work", atWork, "0")

	s = r.open(Options{Rows: 100})
	stop := r.run(s)
	for range 8 {
		began := time.Now()
		r.claim(s, 0, 90)
		r.whole()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("claims and reads took %v", took)
		}
	}
	streamtest.Must(t, s.Finish(t.Context()))
	streamtest.Equal(t, "tables that are being detached", r.text(detaching), "1")
	// PostgreSQL need not look for new tables a second time in a transaction; what was there remains.
	streamtest.Equal(t, "coupons that it found first", scalar(t, idle, "SELECT count(*)::text FROM scrip.coupon WHERE campaign = 'c0' AND n <= 810"), "810")
	streamtest.Must(t, idle.Rollback(t.Context()))
	s.calm()
	r.until("when it has ended, all are dropped", allDropped, "true")
	stop()
	r.whole()
}

// A snapshot that is older than the detaching of a table reads it while PostgreSQL waits for another reader. It delays no writer.
func TestSnapshotReadsWhatIsBeingDetached(t *testing.T) {
	r := newRig(t)
	s := r.sealed(9)
	streamtest.Must(t, s.mergeSome(t.Context()))
	r.until("snapshots are later than the merge", later, "true")
	idle, err := connect(t, r.url).Begin(t.Context())
	streamtest.Must(t, err)
	streamtest.Must(t, r.read(t.Context(), idle))
	old, err := connect(t, r.url).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	streamtest.Must(t, err)
	_, err = old.Exec(t.Context(), "SELECT")
	streamtest.Must(t, err)
	stop := streamtest.Background(t, func(ctx context.Context) error { return s.each(ctx, s.remove) })
	r.until("it waits for the reader", detaching, "1")
	streamtest.Must(t, r.read(t.Context(), old))
	streamtest.Must(t, idle.Rollback(t.Context()))
	r.until("it gives up", "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query ~ 'CONCURRENTLY$'", "0")
	r.claim(s, 0, 90)
	r.claim(s, 0, 90)
	streamtest.Equal(t, "tables that are being detached", r.text(detaching), "1")
	streamtest.Must(t, old.Rollback(t.Context()))
	r.until("when it has ended, all are dropped", allDropped, "true")
	stop()
	r.whole()
}

// While a reader keeps merged segments, young ones become larger, so that the number of tables has a bound.
func TestTablesAreFewBesideAReader(t *testing.T) {
	r := newRig(t)
	s := r.open(Options{Rows: 10, Waiting: 9})
	s.crowd = 8
	r.run(s)
	r.claim(s, 0, 8)
	idle, err := connect(t, r.url).Begin(t.Context())
	streamtest.Must(t, err)
	streamtest.Must(t, r.read(t.Context(), idle))
	const many = 120
	for range many {
		s.calm()
		r.claim(s, 0, 8)
	}
	streamtest.Must(t, s.Finish(t.Context()))
	var tables int
	streamtest.Must(t, r.pool.QueryRow(t.Context(), "SELECT ("+tablesSQL+")::int").Scan(&tables))
	if tables > 4*8+2*mergeOf {
		t.Errorf("%d claims made %d tables", many, tables)
	}
	r.whole()
	streamtest.Must(t, idle.Rollback(t.Context()))
	s.calm()
	r.until("when it has ended, all are dropped", allDropped, "true")
	r.whole()
}

// A segment that was begun is unlisted until the transactions have ended that may list the tables without it, and sessions have
// listed them again.
func TestUnlisted(t *testing.T) {
	r := newRig(t)
	s := r.open(Options{Rows: 10, KeysOnly: true})
	idle, err := connect(t, r.url).Begin(t.Context())
	streamtest.Must(t, err)
	streamtest.Must(t, r.read(t.Context(), idle))
	r.claim(s, 0, 8)
	unlisted := func(want ...int32) {
		t.Helper()
		streamtest.Must(t, s.tend(t.Context()))
		if got := s.Unlisted(); !slices.Equal(got, want) {
			t.Errorf("unlisted: %v, want %v", got, want)
		}
	}
	unlisted(-1)
	unlisted(-1)
	streamtest.Must(t, idle.Rollback(t.Context()))
	r.until("the reader has ended", "SELECT count(*)::text FROM pg_locks WHERE relation = 'scrip_1.coupon_claim'::regclass", "0")
	unlisted()
	r.claim(s, 0, 8)
	unlisted()
	if got := r.open(Options{Rows: 10}).Unlisted(); !slices.Equal(got, []int32{-1, -2}) {
		t.Errorf("of the former owner: %v", got)
	}
}
