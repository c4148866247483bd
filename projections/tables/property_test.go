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

// Whatever happens, and however the log is cut into batches and claims are divided into segments, the tables are what
// a naive read of the log gives. Setting tables.keep changes midway: rebuilt tables, with the later setting from the
// first event on, have the same digests where they show the same.
func TestTablesAreTheFoldOfTheLog(t *testing.T) {
	pools := [3]*pgxpool.Pool{open(t), open(t), open(t)}
	for _, pool := range pools {
		begin(t, pool, young)
		if _, err := pool.Exec(context.Background(), `CREATE FUNCTION us(at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
			AS $$ SELECT coalesce((extract(epoch FROM at) * 1000000)::bigint, 0) $$`); err != nil {
			t.Fatal(err)
		}
	}
	seen, n := map[wire.EventType]int{}, left{}
	for seed := range uint64(*rounds) {
		checkFold(t, seed, pools, seen, &n)
	}
	if n.live == 0 || n.rebuilt == 0 || n.same == 0 || n.other == 0 {
		t.Errorf("no coupon left the tables, or no change of the setting showed, or each did: the test does not test it: %+v", n)
	}
	if kinds := unseen(seen); len(kinds) > 0 {
		t.Errorf("no log had %v: the test does not test it", kinds)
	}
	t.Log(seen)
}

var rounds = flag.Int("tables.rounds", 24, "random logs that TestTablesAreTheFoldOfTheLog folds")

// unseen returns the kinds of events that tables are made of and no log had.
func unseen(seen map[wire.EventType]int) (kinds []wire.EventType) {
	for kind := wire.CampaignCreated; kind < wire.ReminderDue; kind++ {
		if seen[kind] == 0 {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// young is how many young segments there are, besides segment 0.
const young = 1

// left counts coupons that left the live and the rebuilt tables, and random logs with such after which both show the
// same, and not.
type left struct{ live, rebuilt, same, other int }

// changes of tables.keep, in days: set late, switched off, raised, lowered.
var changes = [][2]int64{{0, 1}, {1, 0}, {1, 3}, {3, 1}}

// checkFold writes a random log to two databases, cut into batches in two ways, and a rebuild of it to a third, and
// compares each with a naive read of it. With every second seed processed tasks are cleaned up, and coupons leave;
// with the others the comparison of the tests of whole programs must agree, and notice a row less.
func checkFold(t *testing.T, seed uint64, pools [3]*pgxpool.Pool, seen map[wire.EventType]int, n *left) {
	retention, days := 48*time.Hour, changes[seed/2%uint64(len(changes))]
	if seed%2 == 0 {
		retention, days = 100_000*time.Hour, [2]int64{}
	}
	w := &logWriter{lane: domain.NewLane(domain.LaneOptions{Lanes: 1, Key: [32]byte{1}}),
		World: worldtest.New(worldtest.Random(seed))}
	live, rebuilt := newModel(retention, days[0]), newModel(retention, days[1])
	var log []message
	steps := 5 + w.Choose(60)
	changed := int(seed) * 7 % steps // before which step the setting changes
	for i := range steps {
		if log = append(log, w.step(live)); i == changed {
			live.keep = days[1]
		}
		live.message(uint64(i)+1, log[i])
		rebuilt.message(uint64(i)+1, log[i])
	}
	note(seen, log)
	models, before := [3]*model{live, live, rebuilt}, [3]int64{days[0], days[0], days[1]}
	for i, pool := range pools {
		if i == 2 && days[0] == days[1] {
			break // they are the same
		}
		truncate(t, pool)
		r := &reader{retention: retention, young: young}
		for part, steps := range [][]message{log[:changed], log[changed:]} {
			keep(t, pool, [2]int64{before[i], days[1]}[part])
			for len(steps) > 0 {
				n := min(worldtest.Pick(w.Choose, 1, 2, 7, 40), len(steps))
				if parked := commit(t, pool, r.batch(steps[:n])); len(parked) > 0 {
					t.Fatalf("seed %d: parked %+v", seed, parked)
				}
				steps = steps[n:]
			}
		}
		if models[i].CheckTallies(); len(models[i].Violations) > 0 {
			t.Fatalf("the oracle finds %s\nlog:\n%s", models[i].Violations, show(log))
		}
		want := models[i].tables()
		for table, query := range modelTables {
			got := strings.Split(rows(t, pool, query), "\n")
			sort.Strings(got)
			if d := diff(strings.Join(got, "\n"), want[table]); d != "" {
				t.Fatalf("seed %d, tables %d: %s differs:\n%s\nlog:\n%s", seed, i, table, d, show(log))
			}
		}
	}
	one := pools[0]
	if a, b := projtest.Digest(t, one), projtest.Digest(t, pools[1]); a != b {
		t.Fatalf("digests depend on the batches:\n%s\n%s\nlog:\n%s", a, b, show(log))
	}
	if days[0] != days[1] {
		n.compare(t, pools, live, rebuilt, log)
	}
	if seed%2 == 0 {
		if d, err := compare.Tables(t.Context(), one, live.Fold); err != nil || len(d) > 0 {
			t.Fatalf("seed %d: %v, %q", seed, err, d)
		}
		if gone := rows(t, one, "DELETE FROM scrip_1.coupon_claim WHERE n = 1 RETURNING campaign"); gone != "" {
			if d, err := compare.Tables(t.Context(), one, live.Fold); err != nil || !strings.Contains(strings.Join(d, ";"), "coupon: only in the log: ") {
				t.Fatalf("seed %d, without a coupon: %v, %q", seed, err, d)
			}
		}
	}
}

// compare compares live and rebuilt tables.
func (n *left) compare(t *testing.T, pools [3]*pgxpool.Pool, live, rebuilt *model, log []message) {
	t.Helper()
	n.live += live.removed
	n.rebuilt += rebuilt.removed
	if !maps.Equal(live.tables(), rebuilt.tables()) || !maps.Equal(live.left(), rebuilt.left()) {
		n.other++
		return
	}
	if rebuilt.removed > 0 {
		n.same++
	}
	if a, b := projtest.Digest(t, pools[0]), projtest.Digest(t, pools[2]); a != b {
		t.Fatalf("digests of live tables and of rebuilt ones, which show the same:\n%s\n%s\nlog:\n%s", a, b, show(log))
	}
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
