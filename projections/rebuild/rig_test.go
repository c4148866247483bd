package rebuild

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgtest"
	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"

	"github.com/nats-io/nats.go"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const lanes = 2

var quiet = slog.New(slog.DiscardHandler)

// rig is a log and a database, both real, and a writer that plays the lanes. Its campaigns are c0 and c1, one per lane.
type rig struct {
	t      testing.TB
	server *streamtest.Server
	js     jetstream.JetStream
	log    topology.Log
	url    string
	pool   *pgxpool.Pool

	mu    sync.Mutex // guards what follows
	last  [lanes]uint64
	next  [lanes]uint64 // command
	n     [lanes]uint32
	clock time.Time
}

func newRig(t testing.TB) *rig {
	t.Helper()
	server := streamtest.Start(t)
	js := server.JetStream(t)
	log, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: lanes, KeyFingerprint: "test", Format: topology.FormatUnsealed})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, server: server, js: js, log: log, url: pgtest.URL(t), clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	r.pool = r.connect(r.url)
	return r
}

func (r *rig) connect(url string) *pgxpool.Pool {
	r.t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(pool.Close)
	return pool
}

// write writes a step of a lane a second later; each @ in its lines becomes the log's time.
func (r *rig) write(lane int, lines ...string) uint64 {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock = r.clock.Add(time.Second)
	payload := strings.ReplaceAll(strings.Join(lines, "\n")+"\n", "@", wire.At(r.clock).String())
	return r.publish(lane, []byte(payload))
}

func (r *rig) publish(lane int, payload []byte) uint64 {
	r.t.Helper()
	r.next[lane]++
	header := eventlog.Header{Commands: [2]uint64{r.next[lane], r.next[lane]}, CommandTime: r.clock, LaneTime: r.clock, Owner: "rig"}
	ack, err := r.js.PublishMsg(context.Background(), &nats.Msg{Subject: topology.Evt(lane), Header: header.Encode(), Data: payload})
	if err != nil {
		r.t.Error(err)
		return 0
	}
	r.last[lane] = ack.Sequence
	return ack.Sequence
}

func created(campaign string, number int, more string) string {
	return fmt.Sprintf(`{"type":"campaign.created","campaign":%q,"at":"@","number":%d,"codes":100000000,"max_redemptions":1%s}`, campaign, number, more)
}

// claim writes one message of a lane with that many claims.
func (r *rig) claim(lane, many int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock = r.clock.Add(time.Second)
	var payload []byte
	for range many {
		r.n[lane]++
		e := claimed(fmt.Sprintf("c%d", lane), r.n[lane], wire.At(r.clock))
		payload = append(e.AppendJSON(payload), '\n')
	}
	r.publish(lane, payload)
}

func claimed(campaign string, n uint32, at wire.Instant) *wire.Event {
	return &wire.Event{
		Type: wire.CouponClaimed, Campaign: campaign, At: at, ID: fmt.Sprintf("0193a7b2-7000-7000-8000-%012d", n), N: n,
		Code: fmt.Sprintf("%04X-%04X-%04d", n*7919%65536, n/7%65536, n%10000), CustomerID: fmt.Sprintf("customer-%d", n),
	}
}

// work writes something of everything to each lane.
func (r *rig) work() {
	r.t.Helper()
	for lane := range lanes {
		c := fmt.Sprintf("c%d", lane)
		act := func(kind string, n int, more string) string {
			return fmt.Sprintf(`{"type":%q,"campaign":%q,"at":"@","n":%d,"code":"x"%s}`, kind, c, n, more)
		}
		r.write(lane, created(c, lane, `,"expires_at":"2026-06-01T00:00:00Z","opens_at":"2026-01-01T00:00:00Z"`))
		r.claim(lane, 8)
		r.write(lane, act("coupon.redeemed", 1, `,"order_id":"o1","redeemed_count":1`), act("coupon.redeemed", 2, `,"order_id":"o2","redeemed_count":1`))
		r.write(lane, act("coupon.rolled_back", 2, `,"order_id":"o2","redeemed_count":0,"status":"claimed"`), act("coupon.voided", 3, `,"reason":"fraud","status":"voided"`))
		r.write(lane, fmt.Sprintf(`{"type":"reminder.set","campaign":%q,"at":"@","r":1,"customer_id":"customer-4","kind":"expires","before":"1h0m0s","due_at":"2026-05-31T23:00:00Z","n":4}`, c),
			fmt.Sprintf(`{"type":"reminder.set","campaign":%q,"at":"@","r":2,"customer_id":"customer-5","kind":"expires","before":"1h0m0s","due_at":"2026-05-31T23:00:00Z","n":5}`, c))
		r.write(lane, act("coupon.extended", 4, `,"expires_at":"2026-01-01T02:00:00Z","status":"claimed"`),
			fmt.Sprintf(`{"type":"reminder.cancelled","campaign":%q,"at":"@","r":2}`, c),
			fmt.Sprintf(`{"type":"commands.refused","campaign":%q,"at":"@","counts":{"sold_out":7}}`, c),
			fmt.Sprintf(`{"type":"command.rejected","campaign":%q,"at":"@","sequence":3,"line":2,"reason":"not JSON","payload":"{"}`, c))
		r.write(lane, act("coupon.voided", 999, `,"reason":"poison","status":"voided"`)) // of a coupon that does not exist: parked
		r.claim(lane, 3)
	}
	r.mu.Lock()
	r.clock = r.clock.Add(3 * time.Hour)
	r.mu.Unlock()
	for lane := range lanes {
		r.write(lane, fmt.Sprintf(`{"type":"coupons.expired","campaign":"c%d","at":"@","through":"2026-01-01T02:00:00Z","count":1}`, lane))
		r.claim(lane, 2)
	}
}

// project runs a live projector until the end of the test, or until the function it returns is called.
func (r *rig) project() (stop func()) {
	r.t.Helper()
	p, err := projector.New(r.pool, r.js, r.log, projector.Options{Logger: quiet})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("projector: %v", err)
		}
	})
	r.t.Cleanup(stop)
	return stop
}

// synced waits until everything written is in the live tables.
func (r *rig) synced() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	for lane, sequence := range last {
		if err := projector.Synced(ctx, r.pool, lane, sequence); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) open(opts Options) *Session {
	r.t.Helper()
	s, err := r.tryOpen(opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) tryOpen(opts Options) (*Session, error) {
	opts.Logger = quiet
	if opts.BatchLines == 0 {
		opts.BatchLines = 7 // so that there are many
	}
	return Open(r.t.Context(), r.url, r.js, r.log, opts)
}

func (r *rig) rebuild(opts Options) Result {
	r.t.Helper()
	s := r.open(opts)
	defer s.Close()
	got, err := s.Rebuild(r.t.Context())
	if err != nil {
		r.t.Fatalf("rebuild: %v", err)
	}
	return got
}

// digest is what is in the live tables.
func (r *rig) digest() string { return r.digestOf(r.pool) }

func (r *rig) digestOf(pool *pgxpool.Pool) string {
	r.t.Helper()
	list, err := schema.Digests(r.t.Context(), pool)
	if err != nil {
		r.t.Fatal(err)
	}
	var out strings.Builder
	for _, d := range list {
		fmt.Fprintf(&out, "%s %d %s\n", d.Relation, d.Rows, d.Digest)
	}
	return out.String()
}

// folded is the digest of the whole log, folded message by message by the live projector into a database of its own.
func (r *rig) folded() string {
	r.t.Helper()
	other := &rig{t: r.t, js: r.js, log: r.log, url: pgtest.URL(r.t), last: r.last}
	other.pool = other.connect(other.url)
	stop := other.project()
	other.synced()
	stop()
	return other.digest()
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.pool.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

func (r *rig) text(sql string, args ...any) (value string) {
	r.t.Helper()
	if err := r.pool.QueryRow(r.t.Context(), sql, args...).Scan(&value); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// schemas are those that scrip made.
func (r *rig) schemas() string {
	r.t.Helper()
	return r.text(`SELECT coalesce(string_agg(nspname, ' ' ORDER BY nspname), '') FROM pg_namespace WHERE nspname LIKE 'scrip%' AND nspname <> 'scrip_meta'`)
}
