package rebuild

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

const lockLost = "the lock's connection lost"

var phases = []Phase{Loading, Indexing, CatchingUp, Comparing, Exchanging, Exchanged}

// A rebuild ends at each phase in each way there is: the live tables are untouched, or exchanged if it was that far, and
// the next run cleans up and comes to its end. Claims arrive throughout.
func TestKilledAtEachPhase(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.project()
	r.Work()
	r.synced()
	for _, how := range []struct {
		name string
		kill func(cancel context.CancelFunc)
	}{
		{"cancelled", func(cancel context.CancelFunc) { cancel() }},
		{"all connections lost", func(context.CancelFunc) {
			r.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'scrip rebuild%' AND datname = current_database()")
		}},
		{lockLost, func(context.CancelFunc) {
			r.exec(`SELECT pg_terminate_backend(l.pid) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted
				AND l.objid::bigint = $1 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`, int64(rebuildLock)&0xffffffff)
		}},
	} {
		for _, at := range phases {
			if how.name == lockLost && (at == Indexing || at == Comparing) {
				continue // noticed like the others
			}
			t.Run(how.name+" "+string(at), func(t *testing.T) {
				r.T = t
				r.synced()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				reached := false
				s := r.open(Options{Hook: func(phase Phase) error {
					if phase == Loading || phase == Indexing {
						r.Claim(0, 2)
						r.Claim(1, 2)
						r.synced()
					}
					if phase == at && !reached {
						reached = true
						how.kill(cancel)
					}
					return nil
				}})
				_, err := s.Rebuild(ctx)
				s.Close()
				if !reached {
					t.Fatalf("phase %s was not reached: %v", at, err)
				}
				if err == nil && at != Exchanged {
					t.Errorf("no error")
				}
				r.synced()
				again := r.rebuild(Options{})
				for _, table := range again.Tables {
					if !table.Equal {
						t.Errorf("after %v: %+v", err, table)
					}
				}
				if again.NotCompared != "" {
					t.Errorf("after %v: not compared: %s", err, again.NotCompared)
				}
				if s := r.schemas(); s != "scrip scrip_previous" {
					t.Errorf("schemas %s", s)
				}
			})
		}
	}
	r.T = t
	r.synced()
	if got, want := r.digest(), r.folded(); got != want {
		t.Errorf("tables are not the fold of the log at the end:\n%swant\n%s", got, want)
	}
}

func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.open(Options{Who: "scrip verify"})
	_, err := r.tryOpen(Options{})
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "scrip verify, process") {
		t.Errorf("second: %v", err)
	}
	first.Close()
	second, err := r.tryOpen(Options{})
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	second.Close()
}

// Claims arrive all the time, from another goroutine and in every phase. Before the shadow is indexed, the hook waits until
// the live tables have moved on by a whole round of claims: there is something to catch up with on every machine.
func TestLiveEventsThroughout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.project()
	r.Work()
	r.synced()
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	var rounds atomic.Int64 // of claims that are in the live tables
	writing.Go(func() {
		for ctx.Err() == nil {
			for range 2 * near {
				r.Claim(0, 3)
				r.Claim(1, 1)
			}
			r.synced() // no faster than the tables
			rounds.Add(1)
		}
	})
	seen := map[Phase]bool{}
	for range 3 {
		r.rebuild(Options{Limits: fill.Limits{Lines: 1000}, Hook: func(p Phase) error {
			seen[p] = true
			if p == Indexing {
				before := rounds.Load()
				streamtest.Eventually(t, "a round of claims in the live tables", func() bool { return rounds.Load() >= before+2 })
			}
			return nil
		}})
	}
	cancel()
	writing.Wait()
	r.synced()
	if got, want := r.digest(), r.folded(); got != want {
		t.Errorf("tables are not the fold of the log:\n%swant\n%s", got, want)
	}
	for _, p := range phases {
		if !seen[p] {
			t.Errorf("phase %s was not seen", p)
		}
	}
}

// What is in use need not be whole, current or in the log to be exchanged, and a projector that has stopped goes on.
func TestDamagedTables(t *testing.T) {
	for name, c := range map[string]struct{ damage, want string }{
		"all rows deleted":      {"TRUNCATE scrip.campaign, scrip.coupon_row, scrip.redemption, scrip.expiry_task, scrip.reminder, scrip.campaign_stats, scrip.refusal_stats, scrip.dead_letter", ""},
		"a table dropped":       {"DROP TABLE scrip.redemption", ""},
		"a column dropped":      {"ALTER TABLE scrip.reminder DROP COLUMN customer_id", ""},
		"checkpoint dropped":    {"DROP TABLE scrip.checkpoint", "incomplete"},
		"checkpoint of nothing": {"UPDATE scrip.checkpoint SET digest = repeat('0', 32)", "were not filled from this log"},
		"checkpoint ahead":      {"UPDATE scrip.checkpoint SET sequence = sequence + 1000", "were not filled from this log"},
		"another log":           {"UPDATE scrip.checkpoint SET log = 'other'", "were not filled from this log"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.project()
			r.Work()
			r.synced()
			want := r.digest()
			r.exec(c.damage)
			got := r.rebuild(Options{})
			if !strings.Contains(got.NotCompared, c.want) || (c.want == "") != (got.NotCompared == "") {
				t.Errorf("not compared: %q, want %q", got.NotCompared, c.want)
			}
			if r.digest() != want {
				t.Errorf("rebuilt:\n%swant\n%s", r.digest(), want)
			}
			r.Claim(0, 1)
			r.Claim(1, 1)
			r.synced()
			if got, want := r.digest(), r.folded(); got != want {
				t.Errorf("the projector does not go on:\n%swant\n%s", got, want)
			}
		})
	}
}

// A database without projected events, and an empty log.
func TestEmptyDatabaseAndLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if got := r.rebuild(Options{}); got.Events != 0 {
		t.Errorf("%+v", got)
	}
	r.Work()
	if got := r.rebuild(Options{}); !strings.Contains(got.NotCompared, "behind") {
		t.Errorf("%+v", got)
	}
	want := r.folded()
	if r.digest() != want {
		t.Errorf("rebuilt without a projector:\n%swant\n%s", r.digest(), want)
	}
	r.project()
	r.Claim(0, 1)
	r.Claim(1, 1)
	r.synced()
	if got, want := r.digest(), r.folded(); got != want {
		t.Errorf("a projector does not go on:\n%swant\n%s", got, want)
	}
}

// Lines that live tables park are parked here too: those that do not fit, those that PostgreSQL refuses, and a coupon
// claimed twice, which tables without keys would take.
func TestPoison(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.project()
	r.Work()
	r.synced()
	r.Write(0, `{"type":"coupon.rolled_back","campaign":"c0","at":"@","n":6,"code":"x","order_id":"o","redeemed_count":2,"status":"claimed"}`,
		`{"type":"coupon.voided","campaign":"c0","at":"@","n":7,"code":"x","reason":"r","status":"voided"}`)
	r.Write(1, `nonsense`)
	r.synced()
	for range 2 {
		r.rebuild(Options{Limits: fill.Limits{Lines: 1000}})
		if got, want := r.digest(), r.folded(); got != want {
			t.Errorf("rebuilt:\n%swant\n%s", got, want)
		}
		r.Write(1, `{"type":"coupon.claimed","campaign":"c1","at":"@","n":3,"code":"again","customer_id":"other"}`)
		r.synced()
	}
	if n := r.text("SELECT count(*)::text FROM scrip.dead_letter WHERE stream LIKE 'SCRIP_EVT%'"); n != "6" {
		t.Errorf("%s lines parked, want 6", n)
	}
}

func TestPostgreSQLStopsMidway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cluster := projtest.Cluster(t)
	r.URL = cluster.URL()
	r.Pool = projtest.Pool(t, r.URL)
	stop := r.project()
	r.Work()
	r.synced()
	want := r.digest()
	stop()
	for _, at := range []Phase{Loading, Indexing, Exchanging} {
		s := r.open(Options{Hook: func(p Phase) error {
			if p == at {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				return cluster.Stop(ctx)
			}
			return nil
		}})
		_, err := s.Rebuild(t.Context())
		s.Close()
		if err == nil {
			t.Fatalf("%s: no error", at)
		}
		t.Logf("%s: %v", at, err)
		if _, err := cluster.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.URL = cluster.URL()
		r.Pool.Close()
		r.Pool = projtest.Pool(t, r.URL)
		if r.digest() != want {
			t.Errorf("%s: the live tables changed", at)
		}
		r.rebuild(Options{})
		if r.digest() != want {
			t.Errorf("%s: rebuilt afterwards, they differ", at)
		}
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.project()
	r.Work()
	r.synced()
	want := r.digest()
	role := "r" + strings.ReplaceAll(r.text("SELECT current_database()"), "test", "ole")
	as := projtest.Role(t, r.URL, role)
	if _, err := projtest.Pool(t, projtest.Admin(t, r.URL)).Exec(t.Context(), "GRANT "+role+" TO "+r.text("SELECT current_user::text")); err != nil {
		t.Fatal(err)
	}
	mine := &rig{Rig: r.Rig, URL: as, Pool: r.Pool}
	if _, err := mine.tryOpen(Options{}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "GRANT ") || !strings.Contains(err.Error(), `TO "`+role+`"`) {
		t.Errorf("a role without rights: %v", err)
	}
	r.exec("ALTER SCHEMA scrip OWNER TO " + role)
	if _, err := mine.tryOpen(Options{}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "GRANT CREATE ON DATABASE") {
		t.Errorf("an owner who may not make schemas: %v", err)
	}
	r.exec("ALTER SCHEMA scrip OWNER TO CURRENT_USER")

	// Rights on the tables in use.
	r.exec("GRANT USAGE ON SCHEMA scrip TO " + role)
	r.exec("GRANT SELECT ON scrip.coupon TO " + role)
	r.exec("GRANT SELECT (campaign, claimed) ON scrip.campaign TO " + role + " WITH GRANT OPTION")
	r.rebuild(Options{})
	pool := projtest.Pool(t, as)
	for _, sql := range []string{"SELECT count(*)::text FROM scrip.coupon", "SELECT max(claimed)::text FROM scrip.campaign"} {
		var n string
		if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if r.digest() != want {
		t.Error("digests differ")
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Work()
	s := r.open(Options{Room: func() (uint64, bool) { return 1000, true }})
	defer s.Close()
	if _, err := s.Rebuild(t.Context()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "has 1000.0 B free") {
		t.Errorf("a full disk: %v", err)
	}
	if _, err := s.Undo(t.Context()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no previous tables") {
		t.Errorf("undo of nothing: %v", err)
	}
	if _, err := s.Copy(t.Context(), "ahead", time.Now().Add(time.Hour)); !errors.Is(err, ErrRefused) {
		t.Errorf("a copy of the future: %v", err)
	}
	if _, err := s.Copy(t.Context(), "public", time.Time{}); !errors.Is(err, ErrRefused) {
		t.Errorf("a copy into public: %v", err)
	}
	if s := r.schemas(); s != "scrip" {
		t.Errorf("schemas %s", s)
	}
	for name, ok := range map[string]bool{"yesterday": true, "y_2026": true, "Yesterday": false, "1st": false, "scrip_next": false, "pg_x": false, "": false, `a"b`: false} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	s.Close()
	s = r.open(Options{Room: func() (uint64, bool) { return 0, false }})
	defer s.Close()
	if got, err := s.Rebuild(t.Context()); err != nil || !strings.Contains(strings.Join(got.Notes, ""), "was not checked") {
		t.Errorf("a disk elsewhere: %v, %v", got.Notes, err)
	}
}

// Checkpoints of other projections, whose tables lie elsewhere, are not lost.
func TestCheckpointsOfOtherProjectionsAreCopied(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.project()
	r.Work()
	r.synced()
	r.exec("INSERT INTO scrip.checkpoint (projection, lane, sequence, updated_at, log, digest) VALUES ('daily', 0, 3, now(), 'l', 'd')")
	r.rebuild(Options{})
	r.exec("UPDATE scrip.checkpoint SET sequence = 5 WHERE projection = 'daily'")
	s := r.open(Options{})
	defer s.Close()
	if _, err := s.Undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at := r.text("SELECT sequence::text FROM scrip.checkpoint WHERE projection = 'daily'"); at != "5" {
		t.Errorf("the other projection is at %s, want 5", at)
	}
}
