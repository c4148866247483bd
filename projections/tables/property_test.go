package tables

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/domain/worldtest"
	"github.com/seed-4a2410e3/scrip/projections/compare"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
)

// logWriter makes a log as a lane does: random commands, decided by the domain.
type logWriter struct {
	*worldtest.World
	lane     *domain.Lane
	sequence uint64
}

// step decides some commands, each a message, and returns the event message.
func (w *logWriter) step(m *model) message {
	if w.Choose(4) == 0 {
		w.Now = w.Now.Add(worldtest.Pick(w.Choose, 5*time.Minute, 2*time.Hour, 40*time.Hour))
	}
	step := domain.NewStep(w.lane)
	for n := range 4 + w.Choose(12) {
		w.sequence++
		cmd, scope := w.Command(), wire.ScopeTrusted
		if w.sequence <= 3 { // without campaigns everything is refused
			s := wire.Settings{Codes: 4 - 2*uint32(n), PerCustomer: 2, MaxRedemptions: 1 + uint32(n), ExpiresAt: w.Now + 30*worldtest.Hour}
			cmd = wire.Command{Type: wire.CreateCampaign, ID: "create", Campaign: fmt.Sprint("c", n), Patch: wire.PatchOf(s)}
		} else if cmd.Type.Spec().Scope == wire.ScopeScheduler {
			w.due(m, &cmd)
			scope = wire.ScopeScheduler
		}
		line := cmd.AppendJSON(nil)
		if w.Choose(30) == 0 {
			line = line[:w.Choose(len(line))]
		}
		had := len(step.Events)
		step.Add(domain.Message{Sequence: w.sequence, Scope: scope, Payload: line}, w.Now, nil)
		for _, raw := range bytes.Split(step.Events[had:], []byte{'\n'}) {
			var e wire.Event
			if wire.ParseEvent(bytes.Clone(raw), &e) == nil {
				w.Learn([]wire.Event{e})
			}
		}
	}
	step.Close()
	return message{at: w.lane.Clock(), lines: bytes.Clone(step.Events)}
}

// due turns a remind_due into one of what was due at the end of the step before, if something was.
func (w *logWriter) due(m *model, cmd *wire.Command) {
	for _, name := range slices.Sorted(maps.Keys(m.Campaigns)) {
		for _, r := range m.Campaigns[name].Reminders {
			if cmd.Type == wire.RemindDue && r.State == oracle.Pending && r.Due <= w.Now && w.Choose(3) > 0 {
				cmd.Campaign, cmd.Kind, cmd.DueAt = name, r.Kind(), r.Due
				return
			}
		}
	}
}

// Whatever happens, and however the log is cut into batches, the tables are what a naive read of the log gives.
func TestTablesAreTheFoldOfTheLog(t *testing.T) {
	one, two := open(t), open(t)
	for _, pool := range []*pgxpool.Pool{one, two} {
		if _, err := pool.Exec(context.Background(), `CREATE FUNCTION us(at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
			AS $$ SELECT coalesce((extract(epoch FROM at) * 1000000)::bigint, 0) $$`); err != nil {
			t.Fatal(err)
		}
	}
	seen, removed := map[wire.EventType]int{}, 0
	for seed := range uint64(*rounds) {
		removed += checkFold(t, seed, one, two, seen)
	}
	if removed == 0 {
		t.Error("no coupon left the tables: the test does not test it")
	}
	if kinds := unseen(seen); len(kinds) > 0 {
		t.Errorf("no log had %v: the test does not test it", kinds)
	}
	t.Log(seen)
}

var rounds = flag.Int("tables.rounds", 30, "random logs that TestTablesAreTheFoldOfTheLog folds")

// unseen returns the kinds of events that tables are made of and no log had.
func unseen(seen map[wire.EventType]int) (kinds []wire.EventType) {
	for kind := wire.CampaignCreated; kind < wire.ReminderDue; kind++ {
		if seen[kind] == 0 {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// checkFold writes a random log to two databases, cut into batches in two ways, and compares both with a naive read of it. With
// every second seed processed tasks are cleaned up; with the others the comparison of the tests of whole programs
// must agree, and notice a row less.
func checkFold(t *testing.T, seed uint64, one, two *pgxpool.Pool, seen map[wire.EventType]int) (removed int) {
	retention, keep := 48*time.Hour, int64(1)
	if seed%2 == 0 {
		retention, keep = 100_000*time.Hour, 0
	}
	truncate(t, one)
	truncate(t, two)
	w := &logWriter{lane: domain.NewLane(domain.LaneOptions{Lanes: 1, Key: [32]byte{1}}),
		World: worldtest.New(worldtest.Random(seed))}
	m := newModel(wire.Instant(retention.Microseconds()), wire.Instant(keep)*dayLength)
	var log []message
	for i := range 5 + w.Choose(60) {
		log = append(log, w.step(m))
		m.message(uint64(i)+1, log[i])
	}
	note(seen, log)
	for _, pool := range []*pgxpool.Pool{one, two} {
		if _, err := pool.Exec(t.Context(), "UPDATE scrip_meta.format SET keep_days = $1", keep); err != nil {
			t.Fatal(err)
		}
		r := &reader{retention: retention}
		for rest := log; len(rest) > 0; {
			n := min(worldtest.Pick(w.Choose, 1, 2, 7, 40), len(rest))
			if parked := commit(t, pool, r.batch(rest[:n])); len(parked) > 0 {
				t.Fatalf("seed %d: parked %+v", seed, parked)
			}
			rest = rest[n:]
		}
	}
	if m.CheckTallies(); len(m.Violations) > 0 {
		t.Fatalf("the oracle finds %s\nlog:\n%s", m.Violations, show(log))
	}
	want := m.tables()
	for table, query := range modelTables {
		for _, pool := range []*pgxpool.Pool{one, two} {
			got := strings.Split(rows(t, pool, query), "\n")
			sort.Strings(got)
			if d := diff(strings.Join(got, "\n"), want[table]); d != "" {
				t.Fatalf("seed %d: %s differs:\n%s\nlog:\n%s", seed, table, d, show(log))
			}
		}
	}
	if a, b := projtest.Digest(t, one), projtest.Digest(t, two); a != b {
		t.Fatalf("digests depend on the batches:\n%s\n%s\nlog:\n%s", a, b, show(log))
	}
	if seed%2 == 0 {
		if d, err := compare.Tables(t.Context(), one, m.Fold); err != nil || len(d) > 0 {
			t.Fatalf("seed %d: %v, %q", seed, err, d)
		}
		if gone := rows(t, one, "DELETE FROM scrip_1.coupon_claim WHERE n = 1 RETURNING campaign"); gone != "" {
			if d, err := compare.Tables(t.Context(), one, m.Fold); err != nil || !strings.Contains(strings.Join(d, ";"), "coupon: only in the log: ") {
				t.Fatalf("seed %d, without a coupon: %v, %q", seed, err, d)
			}
		}
	}
	return m.removed
}

func note(seen map[wire.EventType]int, log []message) {
	for _, m := range log {
		for _, raw := range bytes.Split(m.lines, []byte{'\n'}) {
			var e wire.Event
			if wire.ParseEvent(raw, &e) == nil {
				seen[e.Type]++
			}
		}
	}
}

func show(log []message) string {
	var out strings.Builder
	for i, m := range log {
		fmt.Fprintf(&out, "-- %d %s\n%s", i+1, m.at, m.lines)
	}
	return out.String()
}
