package projector

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushLoop")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const lanes = 2

// rig is a log and a database, both real, and a writer that plays the lanes.
type rig struct {
	t      *testing.T
	server *streamtest.Server
	js     jetstream.JetStream
	log    topology.Log
	pool   *pgxpool.Pool

	last    [lanes]uint64 // sequence written last
	covered [lanes]uint64 // commands, by the steps of each lane
	n       [lanes]int    // coupons claimed
	clock   time.Time
}

// newRig makes the test a parallel one: most of its time it waits.
func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	server := streamtest.Start(t)
	js := server.JetStream(t)
	log, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: lanes, KeyFingerprint: "test", Format: topology.FormatUnsealed})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, server: server, js: js, log: log, clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	r.pool = newPool(t, pgtest.URL(t))
	return r
}

func newPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// publish writes a message with the given headers, as they are.
func (r *rig) publish(lane int, header nats.Header, payload string) uint64 {
	r.t.Helper()
	ack, err := r.js.PublishMsg(r.t.Context(), &nats.Msg{Subject: topology.Evt(lane), Header: header, Data: []byte(payload)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.last[lane] = ack.Sequence
	if header.Get(topology.HeaderCommands) != "" {
		r.covered[lane]++
	}
	return ack.Sequence
}

// write writes a step of a lane; each @ in its lines becomes the log's time.
func (r *rig) write(lane int, lines ...string) uint64 {
	r.t.Helper()
	r.clock = r.clock.Add(time.Second)
	at := wire.At(r.clock).String()
	first := r.covered[lane] + 1
	header := eventlog.Header{Commands: [2]uint64{first, first}, CommandTime: r.clock, LaneTime: r.clock, Owner: "rig"}
	payload := ""
	for _, line := range lines {
		payload += strings.ReplaceAll(line, "@", at) + "\n"
	}
	return r.publish(lane, header.Encode(), payload)
}

// create makes the campaign of a lane.
func (r *rig) create(lane int) uint64 {
	r.t.Helper()
	return r.write(lane, fmt.Sprintf(`{"type":"campaign.created","campaign":"c%d","at":"@","number":%d,"codes":1000,"expires_at":"2027-01-01T00:00:00Z","max_redemptions":1}`, lane, lane))
}

// claim writes one message with that many claims.
func (r *rig) claim(lane, many int) uint64 {
	r.t.Helper()
	lines := make([]string, many)
	for i := range lines {
		r.n[lane]++
		lines[i] = fmt.Sprintf(`{"type":"coupon.claimed","campaign":"c%d","at":"@","n":%d,"code":"CODE-%d-%d","customer_id":"customer-%d"}`,
			lane, r.n[lane], lane, r.n[lane], r.n[lane])
	}
	return r.write(lane, lines...)
}

// work writes a campaign and some claims, redemptions and expiries to each lane.
func (r *rig) work() {
	r.t.Helper()
	for lane := range lanes {
		r.create(lane)
		r.claim(lane, 5)
		r.write(lane, fmt.Sprintf(`{"type":"coupon.redeemed","campaign":"c%d","at":"@","n":2,"code":"CODE-%d-2","order_id":"o","redeemed_count":1}`, lane, lane))
		r.claim(lane, 3)
	}
}

// running is a projector at work.
type running struct {
	*Projector
	t    *testing.T
	logs *logs
	stop func()
}

// logs collects what was logged.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func (r *rig) projector(pool *pgxpool.Pool, opts Options) *running {
	r.t.Helper()
	out := &logs{}
	opts.Logger = slog.New(slog.NewTextHandler(out, nil))
	p, err := New(pool, r.js, r.log, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return &running{Projector: p, t: r.t, logs: out}
}

// start runs a projector until stop, or the end of the test.
func (p *running) start() *running {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("Run: %v", err)
		}
		if p.t.Failed() {
			p.t.Log(p.logs.buf.String())
		}
	})
	p.t.Cleanup(p.stop)
	return p
}

func (r *rig) project(opts Options) *running { return r.projector(r.pool, opts).start() }

// synced waits until everything written is in the tables.
func (r *rig) synced(pool *pgxpool.Pool) {
	r.t.Helper()
	for lane, sequence := range r.last {
		r.reached(pool, lane, sequence)
	}
}

func (r *rig) reached(pool *pgxpool.Pool, lane int, sequence uint64) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	if err := Synced(ctx, pool, lane, sequence); err != nil {
		r.t.Fatal(err)
	}
}

func (p *running) reaches(lane int, state State) Progress {
	p.t.Helper()
	streamtest.Eventually(p.t, fmt.Sprintf("lane %d %s", lane, state), func() bool { return p.Progress()[lane].State == state })
	return p.Progress()[lane]
}

// check compares the tables with a fold of the log as it is now, message by message, into another database.
func (r *rig) check(pool *pgxpool.Pool) {
	r.t.Helper()
	other := newPool(r.t, pgtest.URL(r.t))
	ctx := r.t.Context()
	if _, err := schema.Migrate(ctx, other, slog.New(slog.DiscardHandler)); err != nil {
		r.t.Fatal(err)
	}
	p := r.projector(other, Options{MaxLines: 1})
	for lane := range lanes {
		l := p.lanes[lane]
		if err := l.load(ctx); err != nil {
			r.t.Fatal(err)
		}
		reader, err := l.stream.Open(ctx, r.log.UUID, l.at, eventlog.ReaderOptions{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			r.t.Fatal(err)
		}
		err = reader.CatchUp(ctx, func(messages []eventlog.Message) error {
			for i := range messages {
				if err := l.commit(ctx, messages[i:i+1], tables.ApplyOneByOne); err != nil {
					return err
				}
			}
			return nil
		})
		reader.Close()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	if got, want := digest(r.t, pool), digest(r.t, other); got != want {
		r.t.Errorf("tables are not the fold of the log:\ntables\n%slog\n%s", got, want)
	}
}

func digest(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	list, err := schema.Digests(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, d := range list {
		fmt.Fprintf(&out, "%s %d %s\n", d.Relation, d.Rows, d.Digest)
	}
	return out.String()
}

func count(t *testing.T, pool *pgxpool.Pool, query string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}
