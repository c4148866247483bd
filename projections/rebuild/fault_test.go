package rebuild

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/room"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

var phases = []Phase{Loading, Indexing, CatchingUp, Comparing, Exchanging, Exchanged}

func TestCancelledAtEachPhase(t *testing.T) {
	endsAt(t, phases, func(_ *rig, cancel context.CancelFunc) { cancel() })
}

// What is lost is noticed in the other phases like in these.
func TestConnectionsLost(t *testing.T) {
	endsAt(t, []Phase{Loading, CatchingUp, Exchanging, Exchanged}, func(r *rig, _ context.CancelFunc) {
		r.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'scrip rebuild%' AND datname = current_database()")
	})
}

func TestConnectionOfTheLockLost(t *testing.T) {
	endsAt(t, []Phase{Loading, Exchanging}, func(r *rig, _ context.CancelFunc) {
		r.exec(`SELECT pg_terminate_backend(l.pid) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted
			AND l.objid::bigint = $1 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`, int64(schema.RebuildLock)&0xffffffff)
	})
}

// endsAt ends a rebuild at each of some phases: the live tables are untouched, or exchanged if it was that far, and the next
// run cleans up and comes to its end. Claims arrive throughout.
func endsAt(t *testing.T, phases []Phase, kill func(r *rig, cancel context.CancelFunc)) {
	r := filled(t)
	for _, at := range phases {
		t.Run(string(at), func(t *testing.T) {
			r.T = t
			reached := map[Phase]bool{}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := r.open(Options{Hook: func(phase Phase) error {
				if reached[phase] {
					return nil
				}
				reached[phase] = true
				if phase == Loading || phase == Indexing {
					r.Claim(0, 2)
					r.Claim(1, 2)
					r.synced()
				}
				if phase == at {
					kill(r, cancel)
				}
				return nil
			}})
			_, err := s.Rebuild(ctx)
			s.Close()
			if !reached[at] {
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
			streamtest.Equal(t, "schemas", r.schemas(), "scrip previous")
		})
	}
	r.T = t
	r.synced()
	streamtest.Equal(t, "tables are not the fold of the log at the end", r.digest(), r.folded())
}

// Claims arrive all the time, from another goroutine and in every phase. Before the shadow is indexed, the hook waits until
// the live tables have moved on by a whole round of claims: there is something to catch up with on every machine.
func TestLiveEventsThroughout(t *testing.T) {
	r := filled(t)
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	round := make(chan struct{}) // of claims that are in the live tables
	writing.Go(func() {
		for ctx.Err() == nil {
			for range 2 * near {
				r.Claim(0, 3)
				r.Claim(1, 1)
			}
			r.synced() // no faster than the tables
			select {
			case round <- struct{}{}:
			default:
			}
		}
	})
	seen := map[Phase]bool{}
	r.rebuild(Options{Limits: fill.Limits{Lines: 1000}, Hook: func(p Phase) error {
		seen[p] = true
		if p == Indexing {
			<-round
			<-round
		}
		return nil
	}})
	cancel()
	writing.Wait()
	r.synced()
	streamtest.Equal(t, "tables are not the fold of the log", r.digest(), r.folded())
	for _, p := range phases {
		if !seen[p] {
			t.Errorf("phase %s was not seen", p)
		}
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
	if got := r.rebuild(Options{}); !strings.Contains(got.NotCompared, "lag") {
		t.Errorf("%+v", got)
	}
	r.project() // goes on in tables that were rebuilt without one
	r.Claim(0, 1)
	r.Claim(1, 1)
	r.synced()
	streamtest.Equal(t, "rebuilt without a projector", r.digest(), r.folded())
}

// Lines that live tables park are parked here too: those that do not fit, those that PostgreSQL refuses, and a coupon
// claimed twice.
func TestPoison(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.project()
	r.Work()
	r.Write(0, `{"type":"coupon.rolled_back","campaign":"c0","at":"@","n":6,"code":"x","order_id":"o","redeemed_count":2,"status":"claimed"}`,
		`{"type":"coupon.voided","campaign":"c0","at":"@","n":7,"code":"x","reason":"r","status":"voided"}`)
	r.Write(1, `nonsense`)
	r.Write(1, `{"type":"coupon.claimed","campaign":"c1","at":"@","n":3,"code":"again","customer_id":"other"}`)
	r.synced()
	for _, table := range r.rebuild(Options{Limits: fill.Limits{Lines: 1000}}).Tables {
		if !table.Equal {
			t.Errorf("rebuilt: %+v", table)
		}
	}
	streamtest.Equal(t, "lines parked", r.text("SELECT count(*)::text FROM scrip.dead_letter WHERE stream LIKE 'SCRIP_EVT%'"), "5")
}

// What an operator can do follows from the error of PostgreSQL.
func TestErrorsNameWhatToDo(t *testing.T) {
	for state, want := range map[string]string{
		"57P01": "run it again when it is available", "08006": "run it again when it is available", "53100": "make room and run it again", "42501": "GRANT the role",
	} {
		if err := explain(&pgconn.PgError{Code: state}); !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", state, err, want)
		}
	}
}

func TestRoles(t *testing.T) {
	r := filled(t)
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

// What is refused changes nothing, and names what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Work()
	refused := func(what string, err error, text string) {
		t.Helper()
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	outsider, err := pgx.Connect(t.Context(), r.URL+"&application_name=psql")
	streamtest.Must(t, err)
	_, err = outsider.Exec(t.Context(), "SELECT pg_try_advisory_lock($1)", int64(schema.RebuildLock))
	streamtest.Must(t, err)
	_, err = r.tryOpen(Options{})
	refused("a session of others has the lock", err, fmt.Sprintf("psql (PostgreSQL process %d of role scrip, since ", outsider.PgConn().PID()))
	refused("and how to end it", err, fmt.Sprintf("holds the lock of rebuilds, and is none; end it as a superuser or as scrip: SELECT pg_terminate_backend(%d)", outsider.PgConn().PID()))
	streamtest.Must(t, outsider.Close(t.Context()))
	s := r.open(Options{Who: "scrip verify", Room: func() (room.Space, bool) { return room.Space{Free: 1000, Total: 1 << 30}, true }})
	defer s.Close()
	_, err = r.tryOpen(Options{})
	refused("a second session", err, "scrip verify, process")
	refused("which may end", err, "is running on this database; wait until it ends")
	_, err = s.Rebuild(t.Context())
	refused("a full disk", err, "has 1000.0 B free")
	if err := full(t.Context(), s); !errors.Is(err, room.ErrFull) {
		t.Errorf("a disk that is full by now: %v", err)
	}
	err = s.Undo(t.Context())
	refused("undo of nothing", err, "no previous tables")
	_, err = s.Copy(t.Context(), "ahead", time.Now().Add(time.Hour))
	refused("a copy of the future", err, "")
	_, err = s.Copy(t.Context(), "public", time.Time{})
	refused("a copy into public", err, "")
	streamtest.Equal(t, "schemas", r.schemas(), "scrip")
	_, err = s.pool.Exec(t.Context(), "CREATE SCHEMA shop")
	streamtest.Must(t, err)
	_, err = s.Copy(t.Context(), "shop", time.Time{})
	if refused("a copy into a schema of others", err, "no copy of the read tables; choose another name"); strings.Contains(err.Error(), "DROP") {
		t.Errorf("it advises to drop what it has not made: %v", err)
	}
	for name, ok := range map[string]bool{"yesterday": true, "y_2026": true, "Yesterday": false, "1st": false, "scrip_7": false, "pg_x": false, confine.Schema: false, "information_schema": false, "": false, `a"b`: false} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	s.Close()

	s = r.open(Options{Room: func() (room.Space, bool) { return room.Space{}, false }})
	defer s.Close()
	if got, err := s.Rebuild(t.Context()); err != nil || !strings.Contains(strings.Join(got.Notes, ""), "was not checked") {
		t.Errorf("a disk elsewhere: %v, %v", got.Notes, err)
	}
	end := r.reading("previous.coupon_row")
	_, err = s.DropPrevious(t.Context())
	refused("dropping previous tables that are read", err, "the previous tables have been read for longer")
	end()
	if dropped, err := s.DropPrevious(t.Context()); err != nil || !dropped {
		t.Errorf("dropping previous tables: %t, %v", dropped, err)
	}
	// Tables put aside that were filled from what the log no longer holds do not come back: the projector would stop on them.
	if _, err := s.Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.exec("UPDATE previous.checkpoint SET digest = repeat('0', 32) WHERE lane = 1")
	err = s.Undo(t.Context())
	refused("undo", err, "the log no longer has what the previous tables were filled from")

	r.exec("UPDATE scrip_meta.format SET version = 99")
	newer := fmt.Sprintf("have format 99, this program knows formats up to %d", schema.Format)
	refused("tables of a newer version", s.look(t.Context(), s.pool), newer)
	_, err = s.Rebuild(t.Context())
	refused("a rebuild of them", err, newer)
}
