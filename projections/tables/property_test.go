package tables

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// writer makes a log as a lane does: random commands, decided by the domain.
type logWriter struct {
	*rapid.T
	lane     *domain.Lane
	now      wire.Instant
	sequence uint64
	ids      int
	codes    []string // claimed, with their campaign
	owners   []string
	set      []wire.Event // reminders
}

func newLogWriter(t *rapid.T) *logWriter {
	return &logWriter{T: t, now: minute(0), lane: domain.NewLane(domain.LaneOptions{Lanes: 1, Key: [32]byte{1}})}
}

func (w *logWriter) pick(label string, from ...string) string {
	return rapid.SampledFrom(from).Draw(w.T, label)
}

// in is a time from now on, of a few that often coincide.
func (w *logWriter) in(label string) string {
	d := rapid.SampledFrom([]time.Duration{10 * time.Minute, time.Hour, 26 * time.Hour}).Draw(w.T, label)
	return (w.now.Add(d) / 60_000_000 * 60_000_000).String()
}

func (w *logWriter) settings() map[string]any {
	s := map[string]any{
		"codes":           rapid.SampledFrom([]int{0, 3, 8}).Draw(w.T, "codes"),
		"per_customer":    rapid.IntRange(0, 2).Draw(w.T, "per_customer"),
		"max_redemptions": rapid.IntRange(1, 2).Draw(w.T, "max_redemptions"),
	}
	w.instants(s)
	return s
}

// instants draws opening, closing and end, any of which may be left out or taken back.
func (w *logWriter) instants(s map[string]any) {
	for _, name := range []string{"opens_at", "closes_at", "expires_at", "expires_at"} {
		switch rapid.IntRange(0, 5).Draw(w.T, name) {
		case 0, 1, 2:
			s[name] = w.in(name)
		case 3:
			if name != "opens_at" {
				s[name] = nil
			}
		}
	}
	if s["expires_at"] == nil && rapid.Bool().Draw(w.T, "relative") {
		s["valid_for"] = w.pick("valid_for", "90s", "2h")
	}
}

// create is the first message: without campaigns everything is refused.
func (w *logWriter) create() message {
	step := domain.NewStep(w.lane)
	for _, name := range []string{"a", "b"} {
		s := w.settings()
		s["closes_at"] = nil // so that few contradict themselves
		s["campaign"] = name
		w.sequence++
		step.Add(domain.Message{Sequence: w.sequence, Scope: wire.ScopeTrusted, Payload: []byte(w.line("create_campaign", s))}, w.now, nil)
	}
	step.Close()
	return message{at: w.now, lines: bytes.Clone(step.Events)}
}

// step decides one message of a few commands and returns the event message.
func (w *logWriter) step() message {
	if rapid.IntRange(0, 3).Draw(w.T, "later") == 0 {
		w.now = w.now.Add(rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Minute, 2 * time.Hour, 40 * time.Hour}).Draw(w.T, "by"))
	}
	w.now++
	step := domain.NewStep(w.lane)
	for range rapid.IntRange(1, 3).Draw(w.T, "messages") {
		w.sequence++
		scope, lines := wire.ScopeTrusted, []string(nil)
		if rapid.IntRange(0, 3).Draw(w.T, "scheduler") == 0 {
			scope = wire.ScopeScheduler
		}
		for range rapid.IntRange(1, 5).Draw(w.T, "lines") {
			if scope == wire.ScopeScheduler {
				lines = append(lines, w.due())
			} else {
				lines = append(lines, w.command())
			}
		}
		step.Add(domain.Message{Sequence: w.sequence, Scope: scope, Payload: []byte(strings.Join(lines, "\n"))}, w.now, nil)
	}
	step.Close()
	w.learn(step.Events)
	return message{at: w.now, lines: bytes.Clone(step.Events)}
}

// learn keeps the codes handed out.
func (w *logWriter) learn(lines []byte) {
	for _, raw := range bytes.Split(lines, []byte{'\n'}) {
		var e wire.Event
		if wire.ParseEvent(raw, &e) != nil {
			continue
		}
		switch e.Type {
		case wire.CouponClaimed:
			w.codes, w.owners = append(w.codes, e.Code), append(w.owners, e.Campaign)
		case wire.ReminderSet:
			w.set = append(w.set, e)
		}
	}
}

func (w *logWriter) line(kind string, fields map[string]any) string {
	w.ids++
	fields["id"], fields["type"] = fmt.Sprint("i", w.ids), kind
	raw, err := json.Marshal(fields)
	if err != nil {
		w.Fatalf("%v", err)
	}
	return string(raw)
}

func (w *logWriter) command() string {
	f := map[string]any{"campaign": w.pick("campaign", "a", "b", "c")}
	kind := w.pick("kind", "create_campaign", "update_campaign", "claim", "claim", "claim", "claim", "claim", "redeem", "redeem", "redeem", "redeem", "rollback",
		"rollback", "rollback", "void", "extend", "remind", "remind", "remind", "remind", "unremind", "unremind", "import_codes", "state", "state", "garbage")
	switch kind {
	case "create_campaign":
		return w.line(kind, merge(f, w.settings()))
	case "update_campaign":
		s := map[string]any{}
		w.instants(s)
		if rapid.IntRange(0, 3).Draw(w.T, "uses too") == 0 {
			s["max_redemptions"] = rapid.IntRange(1, 2).Draw(w.T, "max_redemptions")
		}
		return w.line(kind, merge(f, s))
	case "claim":
		f["customer_id"] = w.pick("customer", "ann", "bob", "cid", "dan")
		if rapid.Bool().Draw(w.T, "attributed") {
			f["attributes"] = map[string]any{"shop": w.pick("shop", "berlin", "bonn"), "vip": true}
		}
	case "redeem", "rollback", "void", "extend":
		if len(w.codes) == 0 {
			return w.line("claim", merge(f, map[string]any{"customer_id": "ann"}))
		}
		i := rapid.IntRange(0, len(w.codes)-1).Draw(w.T, "coupon")
		f["code"], f["campaign"] = w.codes[i], w.owners[i]
		switch kind {
		case "void":
			f["reason"] = "because"
		case "extend":
			f["expires_at"] = w.in("extended")
		default:
			f["order_id"] = w.pick("order", "o1", "o2")
		}
	case "remind", "unremind":
		f["customer_id"], f["kind"] = w.pick("customer", "ann", "bob"), w.pick("of", "opens", "expires")
		f["before"] = w.pick("before", "1m", "5m", "30m")
	case "import_codes":
		f["codes"] = []string{w.pick("code", "ONE1", "TWO2", "THREE3"), w.pick("code", "FOUR4", "FIVE5", "SIX6")}
	case "state":
		kind = w.pick("state", "pause_campaign", "resume_campaign", "resume_campaign", "resume_campaign", "end_campaign")
		if kind == "end_campaign" && rapid.IntRange(0, 2).Draw(w.T, "really") > 0 {
			kind = "resume_campaign"
		}
	case "garbage":
		return w.pick("garbage", `{"type":`, `{"type":"claim","campaign":"a"}`, `[]`)
	}
	return w.line(kind, f)
}

// due is what a scheduler sends.
func (w *logWriter) due() string {
	f := map[string]any{"campaign": w.pick("campaign", "a", "b", "c")}
	if rapid.IntRange(0, 2).Draw(w.T, "which") == 0 {
		f["through"] = w.now.String()
		return w.line("expire", f)
	}
	// An instant at which something was due once, and may be still.
	at, kind := w.now, "opens"
	if len(w.set) > 0 {
		e := w.set[rapid.IntRange(0, len(w.set)-1).Draw(w.T, "reminder")]
		f["campaign"], at, kind = e.Campaign, e.DueAt, e.Kind
		if view, known := w.lane.Campaign(e.Campaign); known && rapid.Bool().Draw(w.T, "moved") {
			anchor := view.OpensAt
			if kind == "expires" {
				anchor = view.ExpiresAt
			}
			if anchor != nil {
				at = wire.At(*anchor).Add(-e.Before)
			}
		}
	}
	f["kind"], f["due_at"], f["through_r"] = kind, at.String(), rapid.IntRange(1, 20).Draw(w.T, "through_r")
	return w.line("remind_due", f)
}

func merge(into, from map[string]any) map[string]any {
	for k, v := range from {
		into[k] = v
	}
	return into
}

// Whatever happens, and however the log is cut into batches, the tables are what a naive read of the log gives.
func TestTablesAreTheFoldOfTheLog(t *testing.T) {
	const retention = 48 * time.Hour
	one, two := open(t), open(t)
	for _, pool := range []*pgxpool.Pool{one, two} {
		if _, err := pool.Exec(context.Background(), `CREATE FUNCTION us(at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
			AS $$ SELECT coalesce((extract(epoch FROM at) * 1000000)::bigint, 0) $$`); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[wire.EventType]int{}
	// Logs are random: some kinds of events are in few of them. More logs are written until each kind was in one.
	const most = 20
	for round := 0; round < most && (round == 0 || len(unseen(seen)) > 0); round++ {
		rapid.Check(t, func(t *rapid.T) { checkFold(t, one, two, seen, retention) })
	}
	if kinds := unseen(seen); len(kinds) > 0 {
		t.Errorf("no log had %v: the test does not test it", kinds)
	}
	t.Log(seen)
}

// unseen returns the kinds of events that tables are made of and no log had.
func unseen(seen map[wire.EventType]int) (kinds []wire.EventType) {
	for kind := wire.CampaignCreated; kind < wire.ReminderDue; kind++ {
		if seen[kind] == 0 {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// checkFold writes a random log to two databases, cut into batches in two ways, and compares both with a naive read of it.
func checkFold(t *rapid.T, one, two *pgxpool.Pool, seen map[wire.EventType]int, retention time.Duration) {
	truncate(t, one)
	truncate(t, two)
	w := newLogWriter(t)
	m := newModel(wire.Instant(retention.Microseconds()))
	log := []message{w.create()}
	m.message(1, log[0])
	for i := range rapid.IntRange(5, 40).Draw(t, "steps") {
		log = append(log, w.step())
		m.message(uint64(i)+2, log[i+1])
	}
	note(seen, log)
	for _, pool := range []*pgxpool.Pool{one, two} {
		r := &reader{retention: retention}
		for rest := log; len(rest) > 0; {
			n := rapid.SampledFrom([]int{1, 2, 7, 40}).Draw(t, "batch")
			n = min(n, len(rest))
			if parked := commit(t, pool, r.batch(rest[:n])); len(parked) > 0 {
				t.Fatalf("parked %+v", parked)
			}
			rest = rest[n:]
		}
		recounts(t, pool)
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
				t.Fatalf("%s differs:\n%s\nlog:\n%s", table, d, show(log))
			}
		}
	}
	if a, b := digests(t, one), digests(t, two); a != b {
		t.Fatalf("digests depend on the batches:\n%s\n%s\nlog:\n%s", a, b, show(log))
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
