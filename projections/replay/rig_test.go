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
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) {
	os.Exit(streamtest.Leaks(projtest.Main(m), goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushLoop")))
}

const lanes = projtest.Lanes

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
	*projtest.Rig
	lanes [lanes]*domain.Lane
	ids   int
}

var startTime = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// newRig makes the test a parallel one: most of its time it waits.
func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	return newLog(t)
}

func newLog(t testing.TB) *rig {
	t.Helper()
	r := &rig{Rig: projtest.New(t)}
	r.Clock = startTime
	for n := range lanes {
		r.lanes[n] = domain.NewLane(domain.LaneOptions{Lane: n, Lanes: lanes, Key: [32]byte{1}})
	}
	return r
}

// do decides command lines, without their ids, in one step of a campaign's lane.
func (r *rig) do(scope wire.Scope, campaign string, lines ...string) []wire.Outcome {
	r.T.Helper()
	n := wire.LaneOf(campaign, lanes)
	r.Clock = r.Clock.Add(time.Second)
	var message bytes.Buffer
	for _, line := range lines {
		r.ids++
		fmt.Fprintf(&message, "{\"id\":\"i%d\",\"campaign\":%q,%s}\n", r.ids, campaign, line)
	}
	step := domain.NewStep(r.lanes[n])
	replies := step.Add(domain.Message{Sequence: r.Last[n] + 1, Scope: scope, Payload: message.Bytes()}, wire.At(r.Clock), nil)
	step.Close()
	r.Publish(n, r.Header(n), step.Events)
	var outs []wire.Outcome
	for line := range bytes.Lines(replies) {
		out, err := wire.ParseOutcome(bytes.TrimSpace(line))
		streamtest.Must(r.T, err)
		outs = append(outs, out)
	}
	return outs
}

func (r *rig) create(campaign string, more string) {
	r.T.Helper()
	r.do(wire.ScopeTrusted, campaign, `"type":"create_campaign","codes":100000`+more)
}

// claim lets customers claim, in one step, and returns their codes.
func (r *rig) claim(campaign string, customers ...string) (codes []string) {
	r.T.Helper()
	var lines []string
	for _, c := range customers {
		lines = append(lines, fmt.Sprintf(`"type":"claim","customer_id":%q`, c))
	}
	for _, out := range r.do(wire.ScopeTrusted, campaign, lines...) {
		if out.Code == "" {
			r.T.Fatalf("claim: %+v", out)
		}
		codes = append(codes, out.Code)
	}
	return codes
}

func (r *rig) redeem(campaign, code, order string) {
	r.T.Helper()
	if out := r.do(wire.ScopeTrusted, campaign, fmt.Sprintf(`"type":"redeem","code":%q,"order_id":%q`, code, order)); out[0].Refused() {
		r.T.Fatalf("redeem: %+v", out)
	}
}

func (r *rig) rollback(campaign, code, order string) {
	r.T.Helper()
	if out := r.do(wire.ScopeTrusted, campaign, fmt.Sprintf(`"type":"rollback","code":%q,"order_id":%q`, code, order)); out[0].Refused() {
		r.T.Fatalf("rollback: %+v", out)
	}
}

// work writes something of most kinds to both lanes: ann redeems, bob rolls back, cy does nothing, an unreadable
// command is parked, a claim is refused.
func (r *rig) work() {
	r.T.Helper()
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
		r.do(wire.ScopeScheduler, c, fmt.Sprintf(`"type":"expire","through":%q`, wire.At(r.Clock).String()))
	}
}

// stored reads the log by itself: the raw lines of a lane with their places, by nothing of this package.
func (r *rig) stored(lane int) (positions []Position, lines []string) {
	r.T.Helper()
	stream, err := r.JS.Stream(r.T.Context(), topology.EvtStream(lane))
	streamtest.Must(r.T, err)
	for seq := uint64(1); seq <= r.Last[lane]; seq++ {
		m, err := stream.GetMsg(r.T.Context(), seq)
		streamtest.Must(r.T, err)
		for n, line := range strings.Split(strings.TrimSuffix(string(m.Data), "\n"), "\n") {
			if line != "" {
				positions, lines = append(positions, Position{lane, seq, n + 1}), append(lines, line)
			}
		}
	}
	return positions, lines
}

// naive filters the log with encoding/json.
func (r *rig) naive(keep func(p Position, event map[string]any) bool) []Position {
	r.T.Helper()
	var out []Position
	for n := range lanes {
		positions, lines := r.stored(n)
		for i, line := range lines {
			var event map[string]any
			streamtest.Must(r.T, json.Unmarshal([]byte(line), &event))
			if keep(positions[i], event) {
				out = append(out, positions[i])
			}
		}
	}
	return out
}

// loggerTo returns a logger whose output the test reads.
func loggerTo(out *streamtest.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(out, nil)) }

// run replays and fails the test when that fails.
func (r *rig) run(sink Sink, opts Options) Summary {
	r.T.Helper()
	sum, err := r.try(sink, opts)
	streamtest.Must(r.T, err)
	return sum
}

func (r *rig) try(sink Sink, opts Options) (Summary, error) {
	ctx, cancel := context.WithTimeout(r.T.Context(), 3*time.Minute)
	defer cancel()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return Run(ctx, r.JS, r.Log, sink, opts)
}

// follower is a replay in the background.
type follower struct {
	t       testing.TB
	logged  streamtest.Buffer
	changed testsignal.Signal[struct{}] // the sink was used, or something logged
	stop    func()
}

func (f *follower) Write(b []byte) (int, error) {
	defer f.changed.Send(struct{}{})
	return f.logged.Write(b)
}

// until waits for a fact about what the sink or the log holds.
func (f *follower) until(fact func() bool) {
	f.t.Helper()
	for !fact() {
		f.changed.Wait(f.t)
	}
}

// seen is a follower's sink.
type seen struct {
	Sink
	by *follower
}

func (s seen) Write(ctx context.Context, b *Batch) error {
	defer s.by.changed.Send(struct{}{})
	return s.Sink.Write(ctx, b)
}

func (s seen) Flush(ctx context.Context) error {
	defer s.by.changed.Send(struct{}{})
	return s.Sink.Flush(ctx)
}

// follow replays in the background until stop.
func (r *rig) follow(sink Sink, opts Options) *follower {
	f := &follower{t: r.T}
	f.changed.Watch()
	opts.Logger, opts.Follow = slog.New(slog.NewTextHandler(f, nil)), true
	f.stop = streamtest.Background(r.T, func(ctx context.Context) error {
		_, err := Run(ctx, r.JS, r.Log, seen{sink, f}, opts)
		return err
	})
	return f
}

// Func is a sink that calls a function with each batch, from the first event on. It stores no position: each run starts
// again.
func Func(write func(ctx context.Context, b *Batch) error) Sink { return funcSink(write) }

type funcSink func(ctx context.Context, b *Batch) error

func (f funcSink) Begin(context.Context, topology.Log, *Filter) (map[int]eventlog.Position, error) {
	return nil, nil
}
func (f funcSink) Write(ctx context.Context, b *Batch) error { return f(ctx, b) }
func (f funcSink) Flush(context.Context) error               { return nil }
func (f funcSink) End(context.Context, error) error          { return nil }

// collect is a sink that keeps events, with lines of their own.
func collect(into *[]Event) Sink {
	return Func(func(_ context.Context, b *Batch) error {
		for _, e := range b.Events {
			e.Raw = bytes.Clone(e.Raw)
			*into = append(*into, e)
		}
		return nil
	})
}

func equalPositions(t testing.TB, what string, events []Event, want []Position) {
	t.Helper()
	var got []Position
	for _, e := range events {
		got = append(got, e.Position)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// query reads one text from a database.
func query(t testing.TB, url, sql string, args ...any) string {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	streamtest.Must(t, err)
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
	streamtest.Must(t, err)
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
