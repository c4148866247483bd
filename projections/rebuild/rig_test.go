package rebuild

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestMain shortens what a reader or another session is waited for.
func TestMain(m *testing.M) {
	waits = limits{lock: 200 * time.Millisecond, watch: 50 * time.Millisecond, attempts: 2, drop: 100 * time.Millisecond, dropAsked: 200 * time.Millisecond}
	os.Exit(projtest.Main(m))
}

const lanes = projtest.Lanes

var quiet = slog.New(slog.DiscardHandler)

// rig is a log and a database.
type rig struct {
	*projtest.Rig
	URL  string
	Pool *pgxpool.Pool
}

func newRig(t testing.TB) *rig {
	t.Helper()
	url := projtest.URL(t)
	projtest.SessionLocks(t, url)
	return &rig{Rig: projtest.New(t), URL: url, Pool: projtest.Pool(t, url)}
}

// filled is a rig whose live tables have some of everything, with a projector at work. The test is a parallel one.
func filled(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	r := newRig(t)
	r.project()
	r.Work()
	r.synced()
	return r
}

// project runs a live projector until the end of the test, or until the function it returns is called.
func (r *rig) project() (stop func()) {
	r.T.Helper()
	p, err := projector.New(r.Pool, r.JS, r.Log, projector.Options{Logger: quiet, Clock: projtest.Hurried})
	streamtest.Must(r.T, err)
	return streamtest.Background(r.T, p.Run)
}

// synced waits until everything written is in the live tables.
func (r *rig) synced() {
	r.T.Helper()
	r.Mu.Lock()
	last := r.Last
	r.Mu.Unlock()
	for lane, sequence := range last {
		if sequence > 0 {
			projtest.Reached(r.T, r.Pool, lane, sequence)
		}
	}
}

// digest is the content of the live tables.
func (r *rig) digest() string { return projtest.Digest(r.T, r.Pool) }

// folded is the digest of the whole log, folded by the live projector into another database.
func (r *rig) folded() string {
	r.T.Helper()
	url := projtest.URL(r.T)
	other := &rig{Rig: r.Rig, URL: url, Pool: projtest.Pool(r.T, url)}
	stop := other.project()
	other.synced()
	stop()
	return other.digest()
}

// on replaces schemas live and previous in a statement by those of the tables.
func (r *rig) on(sql string) string {
	if !strings.Contains(sql, "live.") && !strings.Contains(sql, "previous.") {
		return sql
	}
	now, err := schema.Current(r.T.Context(), r.Pool)
	streamtest.Must(r.T, err)
	return strings.NewReplacer("live.", now.Live+".", "previous.", now.Previous+".").Replace(sql)
}

// exec runs a statement.
func (r *rig) exec(sql string, args ...any) {
	r.T.Helper()
	if _, err := r.Pool.Exec(r.T.Context(), r.on(sql), args...); err != nil {
		r.T.Fatalf("%s: %v", sql, err)
	}
}

// text returns the one value of a query.
func (r *rig) text(sql string, args ...any) (value string) {
	r.T.Helper()
	if err := r.Pool.QueryRow(r.T.Context(), r.on(sql), args...).Scan(&value); err != nil {
		r.T.Fatalf("%s: %v", sql, err)
	}
	return value
}

func (r *rig) open(opts Options) *Session {
	r.T.Helper()
	s, err := r.tryOpen(opts)
	streamtest.Must(r.T, err)
	return s
}

func (r *rig) tryOpen(opts Options) (*Session, error) {
	opts.Logger = quiet
	if opts.Limits.Lines == 0 {
		opts.Limits.Lines = 7 // so that there are many
	}
	return Open(r.T.Context(), r.URL, r.JS, r.Log, opts)
}

func (r *rig) rebuild(opts Options) Result {
	r.T.Helper()
	s := r.open(opts)
	defer s.Close()
	got, err := s.Rebuild(r.T.Context())
	if err != nil {
		r.T.Fatalf("rebuild: %v", err)
	}
	return got
}

// schemas are those that scrip made, the tables by what they are for.
func (r *rig) schemas() string {
	r.T.Helper()
	return r.text(`SELECT concat_ws(' ', 'scrip', CASE WHEN previous IS NOT NULL THEN 'previous' END, (SELECT 'and ' || string_agg(nspname, ' ') FROM pg_namespace
		WHERE nspname LIKE 'scrip_%' AND nspname NOT IN ('scrip_meta', 'scrip_tables', live, coalesce(previous, '')))) FROM scrip_meta.format`)
}

func (r *rig) verify(opts VerifyOptions) *Report { return r.verifyWith(Options{}, opts) }

func (r *rig) verifyWith(session Options, opts VerifyOptions) *Report {
	r.T.Helper()
	s := r.open(session)
	defer s.Close()
	report, err := s.Verify(r.T.Context(), opts)
	if err != nil {
		r.T.Fatalf("verify: %v", err)
	}
	return report
}
