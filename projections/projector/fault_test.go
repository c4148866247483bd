package projector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// Every place a batch can break at, before it took effect and after.
func TestConnectionBreaksAroundCommit(t *testing.T) {
	lost := errors.New("the answer never came")
	cases := []struct {
		name string
		set  func(r *rig, p *running, hit *atomic.Int32)
	}{
		{"killed before the commit", func(r *rig, p *running, hit *atomic.Int32) {
			p.faults.beforeCommit = func(_ int, backend uint32) {
				if hit.Add(1)%3 == 1 {
					r.terminate(backend)
				}
			}
		}},
		{"committed, the answer is lost", func(r *rig, p *running, hit *atomic.Int32) {
			p.faults.afterCommit = func(int) error {
				if hit.Add(1)%3 == 1 {
					return lost
				}
				return nil
			}
		}},
		{"every connection killed after the commit", func(r *rig, p *running, hit *atomic.Int32) {
			p.faults.afterCommit = func(int) error {
				if hit.Add(1)%5 == 1 {
					r.terminateAll()
				}
				return nil
			}
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.work()
			// A pool of its own, so that the test's queries are not what breaks.
			p := r.projector(projtest.Pool(t, r.pool.Config().ConnString()+"&application_name=victim"), Options{Limits: fill.Limits{Lines: 1}})
			var hit atomic.Int32
			c.set(r, p, &hit)
			p.start()
			for range 5 {
				r.Claim(0, 2)
				r.Claim(1, 2)
			}
			r.synced(r.pool)
			if hit.Load() == 0 {
				t.Error("nothing broke")
			}
			r.check(r.pool)
			if now := p.Progress()[0]; now.Parked != 0 {
				t.Errorf("progress %+v", now)
			}
		})
	}
}

func (r *rig) terminate(backend uint32) {
	if _, err := r.pool.Exec(context.Background(), "SELECT pg_terminate_backend($1)", int32(backend)); err != nil {
		r.T.Error(err)
	}
}

func (r *rig) terminateAll() {
	const all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name ~ '^(victim|scrip projector)'"
	if _, err := r.pool.Exec(context.Background(), all); err != nil {
		r.T.Error(err)
	}
}

// PostgreSQL is unavailable at the start, then available, then stopped and started: each is logged once, and no event
// is missing after it.
func TestPostgresStoppedAndStarted(t *testing.T) {
	r := newRig(t)
	cluster := projtest.Cluster(t)
	url := cluster.URL()
	down := func() {
		t.Helper()
		streamtest.Must(t, cluster.Stop(t.Context()))
	}
	up := func() {
		t.Helper()
		again, err := cluster.Start(t.Context())
		streamtest.Must(t, err)
		if again != url {
			t.Fatalf("the cluster came back at %s, was at %s", again, url)
		}
	}
	down()
	r.work()
	pool := projtest.Pool(t, url)
	p := r.projector(pool, Options{}).start()
	for round := range 2 {
		p.notices("PostgreSQL is unavailable")
		for lane := range lanes {
			// Another projector may have the lock by now: this one knows neither the checkpoint nor the lag.
			p.becomes(lane, func(now Progress) bool { return now.State == Waiting && !now.Known && now.Behind == nil })
		}
		p.ignorant()
		up()
		r.synced(projtest.Pool(t, url)) // a fresh pool: the old one's idle connections are dead
		p.notices("PostgreSQL is available")
		if round == 0 {
			down()
			r.Claim(0, 3)
			r.Claim(1, 3)
		}
	}
	r.check(projtest.Pool(t, url))
}

// A log whose last messages were lost under a checkpoint while it is projected: the lane stops with an error that names the
// next command, and the other lane goes on. When the log is restored, the lane continues.
func TestLostTail(t *testing.T) {
	r := newRig(t)
	r.work()
	old := r.Server.CopyStore(t)
	kept, keptN := r.Last[0], r.Claims[0]
	r.Claim(0, 3)
	p := r.project(Options{})
	r.synced(r.pool)
	whole := r.Server.CopyStore(t)
	last, lastN := r.Last[0], r.Claims[0]
	before := projtest.Digest(t, r.pool)
	r.Server.RestoreStore(t, old)
	r.Last[0], r.Claims[0] = kept, keptN
	now := p.reaches(0, Stopped)
	if !errors.Is(now.Err, eventlog.ErrLostTail) || !strings.Contains(now.Err.Error(), "run `scrip rebuild`") || !strings.Contains(now.Err.Error(), "restore the log") {
		t.Errorf("error %v, want what to do", now.Err)
	}
	if now.Behind != nil {
		t.Errorf("they lack %d messages of a log that they were not filled from", *now.Behind)
	}
	if projtest.Digest(t, r.pool) != before {
		t.Error("the tables changed")
	}
	one, n := r.Last[1], r.Claims[1]
	r.Claim(1, 2)
	r.reached(r.pool, 1, r.Last[1])
	r.Server.RestoreStore(t, whole)
	r.Last, r.Claims = [lanes]uint64{last, one}, [lanes]uint32{lastN, n}
	p.reaches(0, Following)
	if got := p.logged("lane is not projected any more"); got == 0 {
		t.Error("the stop was not logged")
	}
}

// Written on after it lost its tail, the log is not what the tables are of: what the text advises helps.
func TestLostTailWrittenOn(t *testing.T) {
	r := newRig(t)
	r.work()
	old := r.Server.CopyStore(t)
	kept, keptN, covered := r.Last[0], r.Claims[0], r.Covered[0]
	r.Claim(0, 3)
	p := r.project(Options{})
	r.synced(r.pool)
	lost := r.Last[0]
	// The reader finds the log only after it was written on.
	r.Server.Shutdown()
	streamtest.Eventually(t, "it is not known what follows", func() bool { return p.Progress()[1].Behind == nil })
	other := streamtest.Start(t, streamtest.Dir(old))
	r.rewrite(other, kept, keptN, covered, lost)
	other.Shutdown()
	r.Server.RestoreStore(t, other.StoreDir())
	if now := p.reaches(0, Stopped); !errors.Is(now.Err, eventlog.ErrDiverged) || !strings.Contains(now.Err.Error(), "run `scrip rebuild`") {
		t.Errorf("error %v, want what to do", now.Err)
	}
	r.Claim(1, 2)
	r.reached(r.pool, 1, r.Last[1])
	streamtest.Equal(t, "times logged", p.logged("lane is not projected any more"), 1)
	r.exec("DROP SCHEMA scrip CASCADE")
	p.reaches(0, Following)
	r.reached(r.pool, 1, r.Last[1])
	r.reached(r.pool, 0, lost)
	r.check(r.pool)
}

// rewrite writes other messages to lane 0 until it is as long as it was.
func (r *rig) rewrite(server *streamtest.Server, kept uint64, n uint32, covered, until uint64) {
	js := r.JS
	r.JS = server.JetStream(r.T)
	r.Last[0], r.Claims[0], r.Covered[0] = kept, n, covered
	for r.Last[0] < until {
		r.Write(0, `{"type":"campaign.paused","campaign":"c0","at":"@"}`)
	}
	r.JS = js
}

// A database that cannot be used is logged once, and used as soon as possible.
func TestUnusableDatabase(t *testing.T) {
	r := newRig(t)
	r.work()
	conn, err := pgx.Connect(t.Context(), r.pool.Config().ConnString())
	streamtest.Must(t, err)
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "CREATE SCHEMA scrip CREATE TABLE campaign (mine int)"); err != nil {
		t.Fatal(err)
	}
	p := r.project(Options{})
	now := p.reaches(1, Stopped)
	if !strings.Contains(fmt.Sprint(now.Err), "rename schema scrip") {
		t.Errorf("error %v", now.Err)
	}
	if _, err := conn.Exec(t.Context(), "ALTER SCHEMA scrip RENAME TO mine"); err != nil {
		t.Fatal(err)
	}
	r.synced(r.pool)
	r.check(r.pool)
	streamtest.Equal(t, "times logged", p.logged("the projector stopped for all lanes"), 1)
}
