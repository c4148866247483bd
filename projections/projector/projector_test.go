package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// The log becomes tables, whatever a batch holds. A projector that starts goes on where the one before ended, and applies
// nothing twice. A message of others is ignored. Metrics and progress say so.
func TestLogBecomesTables(t *testing.T) {
	r := newRig(t)
	r.work() // some before it starts
	var p *running
	for _, limits := range []fill.Limits{{}, {Lines: 1}, {Bytes: 100}} {
		p = r.project(Options{Limits: limits})
		for range 10 {
			r.Claim(0, 2)
			r.Claim(1, 1)
		}
		r.synced(r.pool)
		p.stop()
		r.Claim(1, 4) // while it is away
	}
	r.Publish(0, nil, []byte(`{"type":"coupon.claimed","campaign":"c0","n":99}`))
	r.Claim(0, 1)
	p = r.project(Options{})
	for lane := range lanes {
		if now := p.notes(lane, r.Last[lane]); now.State != Following || now.LogTime.IsZero() || now.Err != nil || now.Parked != 0 {
			t.Errorf("progress %+v", now)
		}
	}
	streamtest.Equal(t, "coupons", count(t, r.pool, "SELECT count(*) FROM scrip.coupon"), 2*8+3*34+1)
	r.check(r.pool)
	if n, now := p.logged("foreign message in the log"), p.Progress()[0]; n != 1 || now.Foreign != 1 {
		t.Errorf("foreign messages: alarm logged %d times, progress %+v", n, now)
	}

	streamtest.Eventually(t, "segments were looked at", func() bool { _, looked := p.metrics()["segments_overdue"]; return looked })
	got := p.metrics()
	for name, want := range map[string]float64{
		"position0": float64(r.Last[0]), "events_total0": 1, "poison_total0": 0, "foreign_total0": 1, "following1": 1, "stopped1": 0,
		"lag_seconds0": 0, "behind_messages0": 0, "batches_total1": 1, "segments_overdue": 0,
	} {
		if v, there := got[name]; !there || v != want {
			t.Errorf("%s is %v (%v), want %v", name, v, there, want)
		}
	}
}

func TestDroppedTablesAreFilledAgain(t *testing.T) {
	r := newRig(t)
	r.work()
	p := r.project(Options{})
	r.synced(r.pool)
	before := projtest.Digest(t, r.pool)
	for name, drop := range map[string]func(){
		// Nothing is written then: it must notice by itself.
		"while it runs":    func() { r.exec("DROP SCHEMA scrip CASCADE") },
		"while it is away": func() { p.stop(); r.exec("DROP SCHEMA scrip CASCADE"); r.project(Options{}) },
	} {
		drop()
		r.synced(r.pool)
		if after := projtest.Digest(t, r.pool); after != before {
			t.Errorf("%s: before\n%safter\n%s", name, before, after)
		}
	}
}

// What cannot be applied becomes dead letters, each with its reason, whether the fold refuses it or PostgreSQL does; what is
// beside it in the message is applied. Package tables has the other reasons.
func TestPoisonBecomesADeadLetterAndTheLaneContinues(t *testing.T) {
	poison := []struct{ line, reason string }{
		{`{"type":"coupon.claimed","campaign":`, "not valid JSON"},
		{`{"type":"coupon.claimed","campaign":"c0","at":"@","n":1,"code":"X","customer_id":"y"}`, "there already (coupon_claim_key)"},
	}
	r := newRig(t)
	r.create(0)
	r.Claim(0, 2)
	var lines []string
	for _, p := range poison {
		lines = append(lines, p.line, `{"type":"campaign.paused","campaign":"c0","at":"@"}`)
	}
	bad := r.Write(0, lines...)
	r.Claim(0, 3)
	p := r.project(Options{})
	r.synced(r.pool)
	rows, err := r.pool.Query(t.Context(), "SELECT stream || '/' || sequence || '/' || line || ' ' || reason FROM scrip.dead_letter ORDER BY line")
	streamtest.Must(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	streamtest.Must(t, err)
	for i, want := range poison {
		place := fmt.Sprintf("%s/%d/%d ", topology.EvtStream(0), bad, 2*i+1)
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, place) && strings.Contains(s, want.reason) }) {
			t.Errorf("no dead letter %s%q in %q", place, want.reason, got)
		}
	}
	if n := count(t, r.pool, "SELECT count(*) FROM scrip.coupon"); n != 5 || len(got) != len(poison) {
		t.Errorf("%d coupons and %d dead letters", n, len(got))
	}
	now := p.notes(0, r.Last[0])
	if now.Parked != uint64(len(poison)) || now.State != Following || p.logged("event lines stored as dead letters") == 0 {
		t.Errorf("progress %+v", now)
	}
	r.check(r.pool)
}

func TestNewerFormatStopsTheLaneOnly(t *testing.T) {
	r := newRig(t)
	r.work()
	header := eventlog.Header{Commands: [2]uint64{9, 9}, CommandTime: r.Clock, LaneTime: r.Clock, Owner: "rig"}.Encode()
	header.Set(topology.HeaderFormat, strconv.Itoa(topology.Format+1))
	header.Set(topology.HeaderSeal, strings.Repeat("A", 43))
	before := r.Last[0]
	r.Publish(0, header, []byte("?"))
	p := r.project(Options{})
	now := p.reaches(0, Stopped)
	if !errors.Is(now.Err, eventlog.ErrNewerFormat) || !strings.Contains(now.Err.Error(), "use a newer scrip") {
		t.Errorf("error %v", now.Err)
	}
	r.reached(r.pool, 0, before) // what came before it is there
	r.Claim(1, 5)
	r.reached(r.pool, 1, r.Last[1])
	if got := p.Progress()[0]; got.Sequence != before {
		t.Errorf("lane 0 went on to %d", got.Sequence)
	}
	// How late its tables are is known: it has a checkpoint, and the log an end.
	r.Claim(0, 1)
	p.becomes(0, func(now Progress) bool { return now.State == Stopped && now.Behind != nil && *now.Behind == 2 })
	r.shows("2 messages behind, for long, and for how long is not known",
		"SELECT (behind = 2 AND behind_seconds > 0 AND current_in_seconds IS NULL)::text FROM scrip.lag WHERE lane = 0", "true")
	got := p.metrics()
	if lag, there := got["lag_seconds0"]; got["behind_messages0"] != 2 || got["stopped0"] != 1 || !there || lag <= 0 {
		t.Errorf("metrics %v", got)
	}
	streamtest.Equal(t, "times logged", p.logged("lane is not projected any more"), 1)
}

func TestSecondProjectorIsStandbyAndTakesOver(t *testing.T) {
	r := newRig(t)
	r.work()
	first := r.project(Options{})
	r.synced(r.pool)
	second := r.projector(projtest.Pool(t, r.pool.Config().ConnString()), Options{}).start()
	second.reaches(0, Standby)
	r.Claim(0, 1)
	r.synced(r.pool)
	if now := second.Progress()[0]; now.Batches != 0 || now.State != Standby || now.Lag != 0 || now.Behind != nil || // it does not know how late they are
		!strings.HasPrefix(now.Holder, "scrip projector, process ") {
		t.Errorf("the second one worked: %+v", now)
	}
	first.stop()
	r.Claim(0, 1)
	if now := second.notes(0, r.Last[0]); now.Batches == 0 {
		t.Errorf("the second one has not taken over: %+v", now)
	}
	streamtest.Equal(t, "standby logged", second.logged("another projector is running on this database"), 1)
	r.check(r.pool)
}

// blind is a clock by which a projector never looks whether it still has the lock.
type blind struct{ wall.Clock }

func (c blind) After(d time.Duration) <-chan time.Time {
	if d == watchEvery {
		return nil
	}
	return c.Clock.After(d)
}

// A projector that has lost the lock and does not know writes nothing, and keeps its successor from nothing: claims reach the tables
// by that one, whoever begins a segment first.
func TestTakeoverFromOneThatDoesNotStop(t *testing.T) {
	r := newRig(t)
	r.create(0)
	r.create(1)
	first := r.projector(projtest.Pool(t, r.pool.Config().ConnString()), Options{})
	first.opts.Clock = blind{first.opts.Clock}
	first.start()
	r.synced(r.pool)
	second := r.projector(projtest.Pool(t, r.pool.Config().ConnString()), Options{}).start()
	second.reaches(0, Standby)
	r.exec(fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint = %d AND objid::bigint = %d AND granted AND database = "+
		"(SELECT oid FROM pg_database WHERE datname = current_database())", Lock>>32, Lock&0xffffffff))
	for lane := range lanes {
		second.reaches(lane, Following)
	}
	for range 5 {
		r.Claim(0, 2)
		r.Claim(1, 2)
	}
	r.synced(r.pool)
	for lane := range lanes {
		second.notes(lane, r.Last[lane])
		first.reaches(lane, Standby)
	}
	streamtest.Equal(t, "errors of PostgreSQL", first.logged("PostgreSQL is unavailable")+second.logged("PostgreSQL is unavailable"), 0)
	r.check(r.pool)
}

// TestOthersHoldTheLock: while a session that is no projector has the lock, nothing fills the tables, and the projector shows that and
// who it is; how late they are is not known. A name of scrip makes no projector of it.
func TestOthersHoldTheLock(t *testing.T) {
	r := newRig(t)
	r.work()
	first := r.project(Options{})
	r.synced(r.pool)
	first.stop()
	outsider, err := pgx.Connect(t.Context(), projtest.Role(t, r.pool.Config().ConnString(), "outsider"))
	streamtest.Must(t, err)
	defer outsider.Close(context.Background()) //nolint:errcheck
	admin := projtest.Pool(t, projtest.Admin(t, r.pool.Config().ConnString()))
	_, err = admin.Exec(t.Context(), "GRANT EXECUTE ON FUNCTION pg_advisory_lock(bigint) TO outsider")
	streamtest.Must(t, err)
	_, err = outsider.Exec(t.Context(), fmt.Sprintf("SET application_name = 'scrip projector, process 1 on a'; SELECT pg_advisory_lock(%d)", int64(Lock)))
	streamtest.Must(t, err)
	r.Claim(0, 1)

	second := r.project(Options{})
	for lane := range lanes {
		now := second.reaches(lane, Waiting)
		text := fmt.Sprint(now.Err)
		if now.Behind != nil || now.Current != Unknown || !strings.Contains(text, fmt.Sprintf("(PostgreSQL process %d of role outsider)", outsider.PgConn().PID())) ||
			!strings.Contains(text, "is no projector") || !strings.Contains(text, "pg_terminate_backend") {
			t.Errorf("%+v: %s", now, text)
		}
	}
	r.shows("lanes whose lag is known", "SELECT count(behind)::text FROM scrip.lag", "0")
	second.ignorant()
	streamtest.Must(t, outsider.Close(t.Context()))
	second.reaches(0, Following)
	r.synced(r.pool)
	r.check(r.pool)
}

func TestNewRefuses(t *testing.T) {
	r := newRig(t)
	tiny := projtest.Pool(t, r.pool.Config().ConnString()+"&pool_max_conns=1")
	for name, make := range map[string]func() error{
		"no log":    func() error { _, err := New(r.pool, r.JS, topology.Log{}, Options{}); return err },
		"negative":  func() error { _, err := New(r.pool, r.JS, r.Log, Options{Limits: fill.Limits{Lines: -1}}); return err },
		"tiny pool": func() error { _, err := New(tiny, r.JS, r.Log, Options{}); return err },
	} {
		if make() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
