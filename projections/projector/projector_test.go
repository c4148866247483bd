package projector

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestLogBecomesTables(t *testing.T) {
	for name, opts := range map[string]Options{"large batches": {}, "a line at a time": {Limits: fill.Limits{Lines: 1}}, "small bytes": {Limits: fill.Limits{Bytes: 100}}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.work() // some before it starts
			p := r.project(opts)
			for range 20 {
				r.claim(0, 2)
				r.claim(1, 1)
			}
			r.synced(r.pool)
			if got := count(t, r.pool, "SELECT count(*) FROM scrip.coupon"); got != 2*8+20*3 {
				t.Errorf("%d coupons", got)
			}
			r.check(r.pool)
			streamtest.Eventually(t, "progress noted", func() bool { // after the rows are visible
				return p.Progress()[0].Sequence == r.Last[0] && p.Progress()[1].Sequence == r.Last[1]
			})
			for lane, now := range p.Progress() {
				if now.State != Following || now.Sequence != r.Last[lane] || now.LogTime.IsZero() || now.Err != nil || now.Parked != 0 {
					t.Errorf("progress %+v", now)
				}
			}
		})
	}
}

// Restarted, it goes on where it was and applies nothing twice.
func TestRestartContinues(t *testing.T) {
	r := newRig(t)
	for range 3 {
		p := r.project(Options{})
		if r.Last[0] == 0 {
			r.work()
		}
		r.claim(0, 4)
		r.synced(r.pool)
		p.stop()
		r.claim(1, 4) // while it is away
	}
	r.project(Options{})
	r.synced(r.pool)
	r.check(r.pool)
}

func TestDroppedTablesAreFilledAgain(t *testing.T) {
	for name, whileRunning := range map[string]bool{"while it runs": true, "while it is away": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.work()
			p := r.project(Options{})
			r.synced(r.pool)
			before := projtest.Digest(t, r.pool)
			if !whileRunning {
				p.stop()
			}
			if _, err := r.pool.Exec(t.Context(), "DROP SCHEMA scrip CASCADE"); err != nil {
				t.Fatal(err)
			}
			if !whileRunning {
				r.project(Options{})
			}
			// Nothing is written meanwhile: it must notice by itself.
			streamtest.Eventually(t, "tables created again", func() bool {
				var there bool
				err := r.pool.QueryRow(t.Context(), "SELECT to_regclass('scrip.checkpoint') IS NOT NULL").Scan(&there)
				return err == nil && there
			})
			r.synced(r.pool)
			if after := projtest.Digest(t, r.pool); after != before {
				t.Errorf("before\n%safter\n%s", before, after)
			}
		})
	}
}

func TestPoisonBecomesADeadLetterAndTheLaneContinues(t *testing.T) {
	long := strings.Repeat("x", 3000)
	for name, c := range map[string]struct{ line, reason string }{
		"unparsable":   {`{"type":"coupon.claimed","campaign":`, "not valid JSON"},
		"unknown type": {`{"type":"coupon.gilded","campaign":"c0","at":"@"}`, "not known to this version"},
		"twice":        {`{"type":"coupon.claimed","campaign":"c0","at":"@","n":1,"code":"X","customer_id":"y"}`, "there already (coupon_row_key)"},
		"never made":   {`{"type":"coupon.voided","campaign":"c0","at":"@","n":99,"code":"X","status":"voided"}`, "not in the tables"},
		// An attribute that a btree cannot hold: PostgreSQL refuses it, not the fold.
		"refused": {`{"type":"coupon.claimed","campaign":"c0","at":"@","n":50,"code":"X","customer_id":"y","attributes":{"a":"` + noise(long) + `"}}`, "SQLSTATE 54000"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.create(0)
			r.claim(0, 2)
			bad := r.Write(0, `{"type":"campaign.paused","campaign":"c0","at":"@"}`, c.line, `{"type":"campaign.resumed","campaign":"c0","at":"@"}`)
			r.claim(0, 3)
			p := r.project(Options{})
			r.synced(r.pool)
			var stream, reason string
			var sequence uint64
			var line int
			err := r.pool.QueryRow(t.Context(), "SELECT stream, sequence, line, reason FROM scrip.dead_letter").Scan(&stream, &sequence, &line, &reason)
			if err != nil {
				t.Fatal(err)
			}
			if stream != topology.EvtStream(0) || sequence != bad || line != 2 || !strings.Contains(reason, c.reason) {
				t.Errorf("dead letter %s %d:%d %q, want %d:2 %q", stream, sequence, line, reason, bad, c.reason)
			}
			if got := count(t, r.pool, "SELECT count(*) FROM scrip.coupon"); got != 5 {
				t.Errorf("%d coupons, want 5", got)
			}
			// Both are reported a moment after the commit.
			streamtest.Eventually(t, "one parked line in progress and log", func() bool {
				now := p.Progress()[0]
				return now.Parked == 1 && now.State == Following && p.logged("event lines stored as dead letters") == 1
			})
			r.check(r.pool)
		})
	}
}

// noise is text that does not compress, so that it stays as long as it is in an index.
func noise(s string) string {
	out := []byte(s)
	x := uint32(1)
	for i := range out {
		x = x*1664525 + 1013904223
		out[i] = 'a' + byte(x>>24)%26
	}
	return string(out)
}

func TestNewerFormatStopsTheLaneOnly(t *testing.T) {
	r := newRig(t)
	r.work()
	header := eventlog.Header{Commands: [2]uint64{9, 9}, CommandTime: r.Clock, LaneTime: r.Clock, Owner: "rig"}.Encode()
	header.Set(topology.HeaderFormat, "3")
	header.Set(topology.HeaderSeal, strings.Repeat("A", 43))
	before := r.Last[0]
	r.Publish(0, header, []byte("?"))
	p := r.project(Options{})
	now := p.reaches(0, Stopped)
	if !errors.Is(now.Err, eventlog.ErrNewerFormat) || !strings.Contains(now.Err.Error(), "use a newer scrip") {
		t.Errorf("error %v", now.Err)
	}
	r.reached(r.pool, 0, before) // what came before it is there
	r.claim(1, 5)
	r.reached(r.pool, 1, r.Last[1])
	if got := p.Progress()[0]; got.Sequence != before {
		t.Errorf("lane 0 went on to %d", got.Sequence)
	}
	streamtest.Eventually(t, "the stop is logged", func() bool { return p.logged("lane is not projected any more") > 0 }) // after it is noted
	if n := p.logged("lane is not projected any more"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

func TestForeignMessagesAreIgnored(t *testing.T) {
	r := newRig(t)
	r.work()
	r.Publish(0, nil, []byte(`{"type":"coupon.claimed","campaign":"c0","n":99}`))
	r.claim(0, 1)
	p := r.project(Options{})
	r.synced(r.pool)
	streamtest.Eventually(t, "progress noted", func() bool { return p.Progress()[0].Sequence == r.Last[0] })
	if now := p.Progress()[0]; now.Foreign != 1 || now.Parked != 0 {
		t.Errorf("progress %+v", now)
	}
	if n := p.logged("foreign message in the log"); n != 1 {
		t.Errorf("alarm logged %d times", n)
	}
	if got := count(t, r.pool, "SELECT count(*) FROM scrip.coupon WHERE campaign = 'c0'"); got != 9 {
		t.Errorf("%d coupons", got)
	}
}

func TestSecondProjectorIsStandbyAndTakesOver(t *testing.T) {
	r := newRig(t)
	r.work()
	first := r.project(Options{})
	r.synced(r.pool)
	second := r.projector(projtest.Pool(t, r.pool.Config().ConnString()), Options{}).start()
	second.reaches(0, Standby)
	r.claim(0, 1)
	r.synced(r.pool)
	if now := second.Progress()[0]; now.Batches != 0 || now.State != Standby {
		t.Errorf("the second one worked: %+v", now)
	}
	first.stop()
	r.claim(0, 1)
	r.synced(r.pool)
	// The progress of a batch is noted after its rows are visible.
	streamtest.Eventually(t, "the second one has taken over", func() bool { return second.Progress()[0].Batches > 0 })
	if n := second.logged("another projector is running on this database"); n != 1 {
		t.Errorf("standby logged %d times", n)
	}
	r.check(r.pool)
}

// Two lanes at once on one checkpoint, as if the lock had been given to both: the one that is behind is fenced, and its
// rows do not appear.
func TestFence(t *testing.T) {
	r := newRig(t)
	r.create(0)
	p := r.project(Options{})
	r.synced(r.pool)
	zombie := r.projector(projtest.Pool(t, r.pool.Config().ConnString()), Options{}).lanes[0]
	if err := zombie.tables.Load(t.Context(), r.pool); err != nil {
		t.Fatal(err)
	}
	reader, err := zombie.stream.Open(t.Context(), r.Log.UUID, zombie.tables.At, eventlog.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	r.claim(0, 3)
	r.synced(r.pool)
	messages, err := reader.NextBatch(t.Context(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := projtest.Digest(t, r.pool)
	if err := zombie.tables.Apply(t.Context(), messages, fill.Parse(nil, &messages[0], nil)); !errors.Is(err, fill.ErrFenced) {
		t.Errorf("the zombie got %v, want ErrFenced", err)
	}
	if projtest.Digest(t, r.pool) != before {
		t.Error("the zombie changed rows")
	}
	if now := p.Progress()[0]; now.State != Following {
		t.Errorf("the owner was disturbed: %+v", now)
	}
}

func TestMetrics(t *testing.T) {
	r := newRig(t)
	r.work()
	p := r.project(Options{})
	r.synced(r.pool)
	streamtest.Eventually(t, "progress noted", func() bool { return p.Progress()[0].Sequence == r.Last[0] })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"scrip_projection_position0": float64(r.Last[0]), "scrip_projection_events_total0": 10, "scrip_projection_poison_total0": 0,
		"scrip_projection_following1": 1, "scrip_projection_stopped1": 0, "scrip_projection_lag_seconds0": 0,
	} {
		if v, there := got[name]; !there || v != want {
			t.Errorf("%s is %v (%v), want %v", name, v, there, want)
		}
	}
	if got["scrip_projection_batches_total0"] == 0 {
		t.Error("no batches counted")
	}
}

func TestNewRefuses(t *testing.T) {
	r := newRig(t)
	for name, make := range map[string]func() error{
		"no log":   func() error { _, err := New(r.pool, r.JS, topology.Log{}, Options{}); return err },
		"negative": func() error { _, err := New(r.pool, r.JS, r.Log, Options{Limits: fill.Limits{Lines: -1}}); return err },
		"tiny pool": func() error {
			_, err := New(projtest.Pool(t, r.pool.Config().ConnString()+"&pool_max_conns=1"), r.JS, r.Log, Options{})
			return err
		},
	} {
		if make() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestSyncedEndsWithItsContext(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Synced(ctx, r.pool, 0, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Synced: %v", err)
	}
}
