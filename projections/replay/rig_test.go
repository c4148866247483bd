package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgtest"
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

// Campaigns by lane.
var campaigns = [lanes]string{"", ""}

func init() {
	for n := 0; campaigns[0] == "" || campaigns[1] == ""; n++ {
		name := fmt.Sprintf("c%d", n)
		if lane := wire.LaneOf(name, lanes); campaigns[lane] == "" {
			campaigns[lane] = name
		}
	}
}

// rig is a real log whose lines the domain decides.
type rig struct {
	t      testing.TB
	server *streamtest.Server
	js     jetstream.JetStream
	log    topology.Log
	lanes  [lanes]*domain.Lane

	last    [lanes]uint64 // sequence written last
	covered [lanes]uint64 // commands, by the steps of each lane
	ids     int
	clock   time.Time
}

var begin = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// newRig makes the test a parallel one: most of its time it waits.
func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	return newLog(t)
}

func newLog(t testing.TB) *rig {
	t.Helper()
	server := streamtest.Start(t)
	js := server.JetStream(t)
	log, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: lanes, KeyFingerprint: "test", Format: topology.FormatUnsealed})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, server: server, js: js, log: log, clock: begin}
	for n := range lanes {
		r.lanes[n] = domain.NewLane(domain.LaneOptions{Lane: n, Lanes: lanes, Key: [32]byte{1}})
	}
	return r
}

// publish writes a message with the given headers, as they are.
func (r *rig) publish(lane int, header nats.Header, payload []byte) uint64 {
	r.t.Helper()
	ack, err := r.js.PublishMsg(r.t.Context(), &nats.Msg{Subject: topology.Evt(lane), Header: header, Data: payload})
	if err != nil {
		r.t.Fatal(err)
	}
	r.last[lane] = ack.Sequence
	if header.Get(topology.HeaderCommands) != "" {
		r.covered[lane]++
	}
	return ack.Sequence
}

// header is that of the lane's next step.
func (r *rig) header(lane int) nats.Header {
	n := r.covered[lane] + 1
	return eventlog.Header{Commands: [2]uint64{n, n}, CommandTime: r.clock, LaneTime: r.clock, Owner: "rig"}.Encode()
}

// write writes a step of raw lines; each @ becomes the log's time.
func (r *rig) write(lane int, lines ...string) uint64 {
	r.t.Helper()
	r.clock = r.clock.Add(time.Second)
	payload := strings.ReplaceAll(strings.Join(lines, "\n")+"\n", "@", wire.At(r.clock).String())
	return r.publish(lane, r.header(lane), []byte(payload))
}

// do decides command lines, without their ids, in one step of a campaign's lane.
func (r *rig) do(scope wire.Scope, campaign string, lines ...string) []wire.Outcome {
	r.t.Helper()
	n := wire.LaneOf(campaign, lanes)
	r.clock = r.clock.Add(time.Second)
	var message bytes.Buffer
	for _, line := range lines {
		r.ids++
		fmt.Fprintf(&message, "{\"id\":\"i%d\",\"campaign\":%q,%s}\n", r.ids, campaign, line)
	}
	step := domain.NewStep(r.lanes[n])
	replies := step.Add(domain.Message{Sequence: r.last[n] + 1, Scope: scope, Payload: message.Bytes()}, wire.At(r.clock), nil)
	step.Close()
	r.publish(n, r.header(n), step.Events)
	var outs []wire.Outcome
	for line := range bytes.Lines(replies) {
		out, err := wire.ParseOutcome(bytes.TrimSpace(line))
		if err != nil {
			r.t.Fatal(err)
		}
		outs = append(outs, out)
	}
	return outs
}

func (r *rig) create(campaign string, more string) {
	r.t.Helper()
	r.do(wire.ScopeTrusted, campaign, `"type":"create_campaign","codes":100000`+more)
}

// claim lets customers claim, in one step, and returns their codes.
func (r *rig) claim(campaign string, customers ...string) (codes []string) {
	r.t.Helper()
	var lines []string
	for _, c := range customers {
		lines = append(lines, fmt.Sprintf(`"type":"claim","customer_id":%q`, c))
	}
	for _, out := range r.do(wire.ScopeTrusted, campaign, lines...) {
		if out.Code == "" {
			r.t.Fatalf("claim: %+v", out)
		}
		codes = append(codes, out.Code)
	}
	return codes
}

func (r *rig) redeem(campaign, code, order string) {
	r.t.Helper()
	if out := r.do(wire.ScopeTrusted, campaign, fmt.Sprintf(`"type":"redeem","code":%q,"order_id":%q`, code, order)); out[0].Refused() {
		r.t.Fatalf("redeem: %+v", out)
	}
}

func (r *rig) rollback(campaign, code, order string) {
	r.t.Helper()
	if out := r.do(wire.ScopeTrusted, campaign, fmt.Sprintf(`"type":"rollback","code":%q,"order_id":%q`, code, order)); out[0].Refused() {
		r.t.Fatalf("rollback: %+v", out)
	}
}

// work writes something of most kinds to both lanes: ann redeems, bob rolls back, cy does nothing, an unreadable command
// is parked, a claim is refused.
func (r *rig) work() {
	r.t.Helper()
	for _, c := range campaigns {
		r.create(c, `,"prefix":"P","expires_at":"2026-05-02T00:00:00Z"`)
		codes := r.claim(c, "ann", "bob", "cy")
		r.do(wire.ScopeTrusted, c, `"type":"remind","customer_id":"cy","kind":"expires","before":"1h"`)
		r.redeem(c, codes[0], "o1")
		r.redeem(c, codes[1], "o2")
		r.rollback(c, codes[1], "o2")
		r.do(wire.ScopeTrusted, c, `"type":"claim","customer_id":"dee","colour":1`, `"type":"claim","customer_id":"flo","attributes":{"channel":"app"}`)
		r.do(wire.ScopeTrusted, c, `"type":"unremind","customer_id":"cy","kind":"expires","before":"1h"`, `"type":"pause_campaign"`)
		r.do(wire.ScopeTrusted, c, `"type":"claim","customer_id":"eve"`)
		r.do(wire.ScopeTrusted, c, `"type":"resume_campaign"`)
		r.do(wire.ScopeScheduler, c, fmt.Sprintf(`"type":"expire","through":%q`, wire.At(r.clock).String()))
	}
}

// stored reads the log by itself: the raw lines of a lane with their places, by nothing of this package.
func (r *rig) stored(lane int) (places []Place, lines []string) {
	r.t.Helper()
	stream, err := r.js.Stream(r.t.Context(), topology.EvtStream(lane))
	if err != nil {
		r.t.Fatal(err)
	}
	for seq := uint64(1); seq <= r.last[lane]; seq++ {
		m, err := stream.GetMsg(r.t.Context(), seq)
		if err != nil {
			r.t.Fatal(err)
		}
		for n, line := range strings.Split(strings.TrimSuffix(string(m.Data), "\n"), "\n") {
			if line != "" {
				places, lines = append(places, Place{lane, seq, n + 1}), append(lines, line)
			}
		}
	}
	return places, lines
}

// naive filters the log with encoding/json.
func (r *rig) naive(keep func(p Place, event map[string]any) bool) []Place {
	r.t.Helper()
	var out []Place
	for n := range lanes {
		places, lines := r.stored(n)
		for i, line := range lines {
			var event map[string]any
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				r.t.Fatal(err)
			}
			if keep(places[i], event) {
				out = append(out, places[i])
			}
		}
	}
	return out
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

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// run replays and fails the test when that fails.
func (r *rig) run(sink Sink, opts Options) Summary {
	r.t.Helper()
	sum, err := r.try(sink, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return sum
}

func (r *rig) try(sink Sink, opts Options) (Summary, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 40*time.Second)
	defer cancel()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return Run(ctx, r.js, r.log, sink, opts)
}

// follow replays in the background until stop, which returns its error.
func (r *rig) follow(sink Sink, opts Options) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.Follow = true
	ended := make(chan error, 1)
	go func() {
		_, err := Run(ctx, r.js, r.log, sink, opts)
		ended <- err
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	r.t.Cleanup(func() { _ = stop() })
	return stop
}

// collect is a sink that remembers places.
func collect(into *[]Place) Sink {
	return Func(func(_ context.Context, b *Batch) error {
		for i := range b.Events {
			*into = append(*into, b.Events[i].Place)
		}
		return nil
	})
}

func equalPlaces(t testing.TB, what string, got, want []Place) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// query reads one text from a database.
func query(t testing.TB, url, sql string, args ...any) string {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var out *string
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&out); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if out == nil {
		return "NULL"
	}
	return *out
}

func execute(t testing.TB, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// position is that of a message.
func position(r *rig, lane int, sequence uint64) eventlog.Position {
	r.t.Helper()
	raw, err := eventlog.Events(r.js, lane).Get(r.t.Context(), sequence)
	if err != nil {
		r.t.Fatal(err)
	}
	return eventlog.Position{Log: r.log.UUID, Lane: lane, Sequence: sequence, Digest: eventlog.Digest(raw.Header, raw.Data)}
}
