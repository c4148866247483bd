package projector

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) {
	os.Exit(streamtest.Leaks(projtest.Main(m), goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushLoop")))
}

const lanes = projtest.Lanes

// rig is a log and a database, both real.
type rig struct {
	*projtest.Rig
	pool *pgxpool.Pool
}

// newRig makes the test a parallel one: most of its time it waits.
func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	url := projtest.URL(t)
	projtest.SessionLocks(t, url)
	return &rig{Rig: projtest.New(t), pool: projtest.Pool(t, url)}
}

// create makes the campaign of a lane.
func (r *rig) create(lane int) {
	r.T.Helper()
	r.Write(lane, projtest.Created(fmt.Sprint("c", lane), lane, `,"expires_at":"2027-01-01T00:00:00Z"`))
}

// work writes a campaign, some claims and a redemption to each lane.
func (r *rig) work() {
	r.T.Helper()
	for lane := range lanes {
		r.create(lane)
		r.Claim(lane, 5)
		r.Write(lane, fmt.Sprintf(`{"type":"coupon.redeemed","campaign":"c%d","at":"@","n":2,"code":"x","order_id":"o","redeemed_count":1}`, lane))
		r.Claim(lane, 3)
	}
}

// running is a projector at work.
type running struct {
	*Projector
	t    testing.TB
	logs *streamtest.Buffer
	stop func()
}

// logged returns how often a text was logged.
func (p *running) logged(text string) int { return strings.Count(p.logs.String(), text) }

func (r *rig) projector(pool *pgxpool.Pool, opts Options) *running {
	r.T.Helper()
	out := &streamtest.Buffer{}
	opts.Logger, opts.Clock = slog.New(slog.NewTextHandler(out, nil)), projtest.Hurried
	p, err := New(pool, r.JS, r.Log, opts)
	streamtest.Must(r.T, err)
	p.signals.progress.Watch()
	p.signals.outage.Watch()
	return &running{Projector: p, t: r.T, logs: out}
}

// start runs a projector until stop, or the end of the test.
func (p *running) start() *running {
	p.stop = streamtest.Background(p.t, p.Run)
	p.t.Cleanup(func() {
		if p.t.Failed() {
			p.t.Log(p.logs.String())
		}
	})
	return p
}

func (r *rig) project(opts Options) *running { return r.projector(r.pool, opts).start() }

// synced waits until everything written is in the tables.
func (r *rig) synced(pool *pgxpool.Pool) {
	r.T.Helper()
	for lane, sequence := range r.Last {
		r.reached(pool, lane, sequence)
	}
}

func (r *rig) reached(pool *pgxpool.Pool, lane int, sequence uint64) {
	r.T.Helper()
	if sequence > 0 {
		projtest.Reached(r.T, pool, lane, sequence)
	}
}

// metrics are its gauges and counters, by name and lane without a space between.
func (p *running) metrics() map[string]float64 {
	p.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p)
	families, err := registry.Gather()
	streamtest.Must(p.t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "scrip_projection_")
			for _, l := range m.GetLabel() {
				name += l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return got
}

// ignorant checks that no metric of a lane is about the checkpoint.
func (p *running) ignorant() {
	p.t.Helper()
	got := p.metrics()
	for _, name := range []string{"lag_seconds0", "behind_messages0", "current_seconds0", "position0"} {
		if _, there := got[name]; there {
			p.t.Errorf("%s is not known: %v", name, got)
		}
	}
}

// becomes waits until the progress of a lane is as wanted, and returns it.
func (p *running) becomes(lane int, wanted func(now Progress) bool) Progress {
	p.t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; { // other lanes may signal for ever
		now := p.Progress()[lane]
		if wanted(now) {
			return now
		}
		if time.Now().After(end) {
			p.t.Fatalf("lane %d is %+v", lane, now)
		}
		p.signals.progress.Wait(p.t)
	}
}

func (p *running) reaches(lane int, state State) Progress {
	p.t.Helper()
	return p.becomes(lane, func(now Progress) bool { return now.State == state })
}

// notes waits until the progress of a lane shows a sequence, a moment after its rows are visible.
func (p *running) notes(lane int, sequence uint64) Progress {
	p.t.Helper()
	return p.becomes(lane, func(now Progress) bool { return now.Sequence == sequence })
}

// notices waits for a line about an outage.
func (p *running) notices(text string) {
	p.t.Helper()
	if got := p.signals.outage.Wait(p.t); got != text {
		p.t.Errorf("%s; want that %s", got, text)
	}
}

// check compares the tables with a fold of the log as it is now, message by message, into another database.
func (r *rig) check(pool *pgxpool.Pool) {
	r.T.Helper()
	other := projtest.Pool(r.T, projtest.URL(r.T))
	ctx := r.T.Context()
	if _, err := schema.Ensure(ctx, other, slog.New(slog.DiscardHandler)); err != nil {
		r.T.Fatal(err)
	}
	for lane := range lanes {
		reader, err := eventlog.Events(r.JS, lane).In(r.Log).Open(ctx, r.Log.UUID, eventlog.Position{Log: r.Log.UUID, Lane: lane}, eventlog.ReaderOptions{Logger: slog.New(slog.DiscardHandler)})
		streamtest.Must(r.T, err)
		batch := tables.Batch{Schema: "scrip_1", Lane: lane}
		err = reader.CatchUp(ctx, func(messages []eventlog.Message) error {
			for i := range messages {
				batch.Lines = fill.Parse(nil, &messages[i], nil)
				batch.From, batch.To = batch.To, wire.At(messages[i].LaneTime)
				tx, err := tables.Begin(ctx, other)
				if err != nil {
					return err
				}
				if _, err := tables.ApplyOneByOne(ctx, tx, &batch); err != nil {
					return errors.Join(err, tx.Rollback(ctx))
				}
				if err := tx.Commit(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		reader.Close()
		streamtest.Must(r.T, err)
	}
	streamtest.Equal(r.T, "tables are not the fold of the log", projtest.Digest(r.T, pool), projtest.Digest(r.T, other))
}

func count(t *testing.T, pool *pgxpool.Pool, query string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// shows waits until a query returns a text.
func (r *rig) shows(what, query, want string) {
	r.T.Helper()
	streamtest.Eventually(r.T, what+": "+want, func() bool {
		var got string
		streamtest.Must(r.T, r.pool.QueryRow(r.T.Context(), query).Scan(&got))
		return got == want
	})
}

func (r *rig) exec(sql string) {
	r.T.Helper()
	if _, err := r.pool.Exec(r.T.Context(), sql); err != nil {
		r.T.Fatalf("%s: %v", sql, err)
	}
}
