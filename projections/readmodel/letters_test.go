package readmodel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// letterRig is a database with dead letters of two lanes, as the projector leaves them.
type letterRig struct {
	*Letters
	t    *testing.T
	pool *pgxpool.Pool
}

func newLetterRig(t *testing.T) *letterRig {
	t.Helper()
	pool := database(t)
	return &letterRig{Letters: NewLetters(pool), t: t, pool: pool}
}

// apply folds one message into the tables: lines, with @n for minutes.
func (r *letterRig) apply(lane int, sequence uint64, at int, lines ...string) {
	r.t.Helper()
	ctx := r.t.Context()
	batch := &tables.Batch{Schema: inUse(r.t, r.pool), Lane: lane, To: wire.At(minute(at))}
	for n, line := range lines {
		line = strings.ReplaceAll(line, "@", minute(at).Format(time.RFC3339))
		var l tables.Line
		l.Read(sequence, uint32(n)+1, []byte(line), batch.To)
		batch.Lines = append(batch.Lines, l)
	}
	tx, err := tables.Begin(ctx, r.pool)
	streamtest.Must(r.t, err)
	if _, err := tables.Apply(ctx, tx, batch); err != nil {
		r.t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO scrip_tables.checkpoint (projection, lane, sequence, updated_at, log, digest) VALUES ('tables', $1, $2, now(), 'the-log', 'd')
		ON CONFLICT (projection, lane) DO UPDATE SET sequence = excluded.sequence`, lane, int64(sequence)); err != nil {
		r.t.Fatal(err)
	}
	streamtest.Must(r.t, tx.Commit(ctx))
}

const (
	rejected = `{"type":"command.rejected","campaign":"c","at":"@","sequence":%d,"line":%d,"reason":"customer_id: missing","payload":%q}`
	poison   = `{"type":"coupon.redeemed","campaign":"nowhere","at":"@","n":7,"order_id":"o","redeemed_count":1}`
)

// fill leaves four dead letters.
func (r *letterRig) fill() {
	r.apply(0, 1, 1, fmt.Sprintf(rejected, 11, 2, `{"id":"a"}`), fmt.Sprintf(rejected, 12, 0, `nonsense`))
	r.apply(1, 1, 2, poison)
	r.apply(1, 2, 3, fmt.Sprintf(rejected, 5, 1, `{"id":"b"}`))
}

func ids(list []Letter) string {
	var out []string
	for _, l := range list {
		out = append(out, l.ID.String())
	}
	return strings.Join(out, " ")
}

const all = "SCRIP_CMD_1.5.1 SCRIP_EVT_1.1.1 SCRIP_CMD_0.12.0 SCRIP_CMD_0.11.2"

func (r *letterRig) list(f LetterFilter) string {
	r.t.Helper()
	list, _, _, err := r.List(r.t.Context(), f)
	streamtest.Must(r.t, err)
	return ids(list)
}

func TestList(t *testing.T) {
	r := newLetterRig(t)
	streamtest.Equal(t, "none", r.list(LetterFilter{}), "")
	r.fill()
	lane := 0
	for want, f := range map[string]LetterFilter{
		all:                                 {},
		"SCRIP_EVT_1.1.1":                   {Stream: OfEvents},
		"SCRIP_CMD_1.5.1":                   {Stream: "SCRIP_CMD_1"},
		"SCRIP_CMD_0.12.0 SCRIP_CMD_0.11.2": {Lane: &lane, State: Open},
		"SCRIP_CMD_1.5.1 SCRIP_EVT_1.1.1":   {Since: minute(2)},
		"SCRIP_CMD_1.5.1 SCRIP_CMD_0.12.0 SCRIP_CMD_0.11.2": {Stream: OfCommands},
		"": {State: Discarded},
	} {
		if got := r.list(f); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
	for _, limit := range []int{1, 2, 3, 4} {
		var got []Letter
		for before := ""; ; {
			list, older, _, err := r.List(t.Context(), LetterFilter{Limit: limit, Before: before})
			streamtest.Must(t, err)
			got = append(got, list...)
			if before = older; before == "" {
				break
			}
		}
		if ids(got) != all {
			t.Errorf("pages of %d: %s", limit, ids(got))
		}
	}
	for _, f := range []LetterFilter{{Limit: -1}, {Stream: "SCRIP_CMD_\x00"}, {Stream: "letters"}, {Limit: MostLetters + 1}, {Before: "x"}, {Before: "1.2.3"}, {Before: "1.2.3.4.5"}, {Before: "9000000000000000000.1.1.1"}} {
		if _, _, _, err := r.List(t.Context(), f); err == nil {
			t.Errorf("%+v was accepted", f)
		}
	}
}

func (r *letterRig) find(id string) Letter {
	r.t.Helper()
	parsed, err := ParseLetterID(id)
	streamtest.Must(r.t, err)
	l, err := r.Find(r.t.Context(), parsed)
	streamtest.Must(r.t, err)
	return l
}

func TestFind(t *testing.T) {
	r := newLetterRig(t)
	r.fill()
	l := r.find("SCRIP_CMD_0.11.2")
	if l.Reason != "customer_id: missing" || l.Payload != `{"id":"a"}` || !l.At.Equal(minute(1)) || l.EventSequence != 1 || l.EventLine != 1 || l.State != Open || l.IsEvent() {
		t.Errorf("%+v", l)
	}
	if l := r.find("SCRIP_EVT_1.1.1"); !l.IsEvent() || !strings.Contains(l.Payload, `"nowhere"`) || !strings.Contains(l.Reason, "not in the tables") {
		t.Errorf("%+v", l)
	}
	absent, _ := ParseLetterID("SCRIP_CMD_0.11.3")
	if _, err := r.Find(t.Context(), absent); !errors.Is(err, ErrNoLetter) || !strings.Contains(err.Error(), "deadletter list") {
		t.Errorf("an absent one: %v", err)
	}
	// The command stream was created again: the same position once more.
	r.apply(0, 9, 9, fmt.Sprintf(rejected, 11, 2, `{"id":"z"}`))
	twice, _ := ParseLetterID("SCRIP_CMD_0.11.2")
	if _, err := r.Find(t.Context(), twice); !errors.Is(err, ErrManyLetters) || !strings.Contains(err.Error(), "SCRIP_CMD_0.11.2@1.1, SCRIP_CMD_0.11.2@9.1") {
		t.Errorf("an ambiguous one: %v", err)
	}
	if l := r.find("SCRIP_CMD_0.11.2@9.1"); l.Payload != `{"id":"z"}` {
		t.Errorf("the exact one: %+v", l)
	}
	for _, id := range []string{"", "12", "SCRIP_CMD_0", "SCRIP_CMD_0.1", "SCRIP_CMD_x.1.1", "SCRIP_RMD_0.1.1", "SCRIP_CMD_0.0.1", "SCRIP_CMD_0.1.x", "SCRIP_CMD_0.1.1@", "SCRIP_CMD_0.1.1@0.1", "SCRIP_CMD_0.1.1/1"} {
		if _, err := ParseLetterID(id); err == nil || !strings.Contains(err.Error(), "SCRIP_CMD_0.12.3") {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func (r *letterRig) open() LetterCounts {
	r.t.Helper()
	c, err := r.Open(r.t.Context())
	streamtest.Must(r.t, err)
	return c
}

// What people did changes no digest and outlives the tables; a log that used the same place for something else knows
// nothing of it.
func TestSettle(t *testing.T) {
	r := newLetterRig(t)
	ctx := t.Context()
	r.fill()
	before := projtest.Digest(t, r.pool)
	streamtest.Equal(t, "open at first", r.open(), LetterCounts{Commands: 3, Events: 1})
	l := r.find("SCRIP_CMD_0.11.2")
	for _, step := range []struct {
		state LetterState
		note  string
	}{{Discarded, "a test"}, {Discarded, "a test of the shop"}, {Retried, "claimed"}, {Retried, "claimed again"}} {
		streamtest.Must(t, r.Settle(ctx, &l, step.state, step.note))
		if l = r.find("SCRIP_CMD_0.11.2"); l.State != step.state || l.Note != step.note || l.SettledAt == nil {
			t.Errorf("%+v became %+v", step, l)
		}
		// Discarding without a note adds nothing to what is noted.
		err := r.Settle(ctx, &l, Discarded, "")
		if now := r.find("SCRIP_CMD_0.11.2"); errors.Is(err, ErrRetried) != (step.state == Retried) || now.State != l.State || now.Note != l.Note || !now.SettledAt.Equal(*l.SettledAt) {
			t.Errorf("%+v, discarded without a note: %+v, %v", step, now, err)
		}
	}
	if err := r.Settle(ctx, &l, Discarded, "noise"); !errors.Is(err, ErrRetried) {
		t.Errorf("discarding what was retried: %v", err)
	}
	if err := r.Reopen(ctx, &l); !errors.Is(err, ErrRetried) || r.find("SCRIP_CMD_0.11.2").State != Retried {
		t.Errorf("opening what was retried: %v", err)
	}
	streamtest.Equal(t, "open after one was retried", r.open(), LetterCounts{Commands: 2, Events: 1})
	streamtest.Equal(t, "retried", r.list(LetterFilter{State: Retried}), "SCRIP_CMD_0.11.2")
	streamtest.Equal(t, "the digests differ", projtest.Digest(t, r.pool), before)
	if n, err := r.DiscardAll(ctx, LetterFilter{Stream: OfCommands}, "noise"); err != nil || n != 2 {
		t.Errorf("discarding all commands: %d, %v", n, err)
	}
	streamtest.Equal(t, "open after that", r.open(), LetterCounts{Events: 1})
	if l := r.find("SCRIP_CMD_0.11.2"); l.State != Retried || l.Note != "claimed again" {
		t.Errorf("a retried one was discarded with all: %+v", l)
	}

	// The tables are dropped and filled again.
	exec(t, r.pool, "DROP SCHEMA scrip CASCADE")
	ensure(t, r.pool)
	streamtest.Equal(t, "open in empty tables", r.open(), LetterCounts{})
	r.fill()
	streamtest.Equal(t, "open in tables filled again", r.open(), LetterCounts{Events: 1})
	streamtest.Equal(t, "the digests differ after it", projtest.Digest(t, r.pool), before)
	noise := r.list(LetterFilter{Stream: OfCommands, State: Discarded})
	l = r.find(strings.Fields(noise)[0])
	streamtest.Must(t, r.Reopen(ctx, &l))
	streamtest.Equal(t, "open after one was opened again", r.open(), LetterCounts{Commands: 1, Events: 1})
	if _, err := r.DiscardAll(ctx, LetterFilter{}, ""); err != nil {
		t.Fatal(err)
	}
	streamtest.Equal(t, "open after all were discarded", r.open(), LetterCounts{})

	// Another log, and the same log with another event in that place.
	exec(t, r.pool, "UPDATE scrip_tables.dead_letter SET at = at + interval '1 s' WHERE lane = 0")
	streamtest.Equal(t, "open where other events took the places", r.open(), LetterCounts{Commands: 2})
	exec(t, r.pool, "UPDATE scrip_tables.checkpoint SET log = 'another'")
	streamtest.Equal(t, "open in another log", r.open(), LetterCounts{Commands: 3, Events: 1})
}

// TestNoRights: a role that may only read gets an error that names the missing grant.
func TestNoRights(t *testing.T) {
	r := newLetterRig(t)
	r.fill()
	l := r.find("SCRIP_CMD_0.11.2")
	as := projtest.Role(t, r.pool.Config().ConnString(), "reader")
	for _, sql := range []string{"GRANT USAGE ON SCHEMA scrip_tables, scrip_meta TO reader",
		"GRANT SELECT ON ALL TABLES IN SCHEMA scrip_tables TO reader", "GRANT SELECT ON scrip_meta.dead_letter TO reader"} {
		exec(t, r.pool, sql)
	}
	weak := NewLetters(projtest.Pool(t, as))
	if c, err := weak.Open(t.Context()); err != nil || c.Commands != 3 {
		t.Errorf("reading: %+v, %v", c, err)
	}
	if err := weak.Settle(t.Context(), &l, Discarded, ""); err == nil || !strings.Contains(err.Error(), "GRANT SELECT, INSERT") {
		t.Errorf("writing: %v", err)
	}
	exec(t, r.pool, "DROP SCHEMA scrip, scrip_tables CASCADE")
	if _, err := r.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "scrip serve") {
		t.Errorf("without tables: %v", err)
	}
}

func TestOriginal(t *testing.T) {
	long := strings.Repeat("x", 2000)
	message := "{\"id\":\"a\"}\n\n{\"id\":\"" + long + "\"}\nodd \xff line\n"
	for name, c := range map[string]struct {
		letter  Letter
		message string
		err     error
		text    string
		missing string
		cut     bool
	}{
		"line":            {Letter{Line: 1, Payload: `{"id":"a"}`}, message, nil, `{"id":"a"}`, "", false},
		"long line":       {Letter{Line: 3, Payload: `{"id":"xxxxx…`}, message, nil, `{"id":"` + long + `"}`, "", false},
		"not text":        {Letter{Line: 4, Payload: "odd \uFFFD line"}, message, nil, "odd \xff line", "", false},
		"whole message":   {Letter{Line: 0, Payload: `{"id":"a…`}, message, nil, message, "", false},
		"purged":          {Letter{Line: 1, Payload: `{"id":"a"}`}, "", eventlog.ErrTrimmed, `{"id":"a"}`, "starts after", false},
		"purged and long": {Letter{Line: 1, Payload: `{"id":"xxx…`}, "", eventlog.ErrTrimmed, `{"id":"xxx`, "starts after", true},
		"another line":    {Letter{Line: 1, Payload: `{"id":"b"}`}, message, nil, `{"id":"b"}`, "was created again", false},
		"no such line":    {Letter{Line: 9, Payload: `{"id":"b"}`}, message, nil, `{"id":"b"}`, "was created again", false},
		"event":           {Letter{Stream: topology.EvtStream(0), Line: 1, Payload: `{"id":"a"}`}, message, nil, `{"id":"a"}`, "", false},
		"long event":      {Letter{Stream: topology.EvtStream(0), Line: 1, Payload: strings.Repeat("y", 4096)}, strings.Repeat("y", 9000), nil, strings.Repeat("y", 9000), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.letter.Original(t.Context(), func(context.Context, *Letter, uint64) (eventlog.Raw, error) {
				return eventlog.Raw{Data: []byte(c.message), Subject: "s"}, c.err
			})
			if string(got.Text) != c.text || got.Cut != c.cut || (got.Missing != nil) != (c.missing != "") || got.Missing != nil && !strings.Contains(got.Missing.Error(), c.missing) {
				t.Errorf("%.80q cut %t missing %v", got.Text, got.Cut, got.Missing)
			}
			if (got.Subject != "") != (c.missing == "") {
				t.Errorf("subject %q", got.Subject)
			}
		})
	}
}

// With more than ten lanes, the name of one stream is a prefix of others.
func TestStreamNamesAreComparedWhole(t *testing.T) {
	r := newLetterRig(t)
	for lane := range 16 {
		r.apply(lane, 1, 0)
	}
	if _, err := r.pool.Exec(t.Context(), `INSERT INTO scrip_tables.dead_letter (lane, sequence, line, event_sequence, event_line, at, stream, reason, payload)
		SELECT g, 3, 1, 4, 1, now(), 'SCRIP_CMD_' || g, 'r', 'p' FROM generate_series(0, 15) g`); err != nil {
		t.Fatal(err)
	}
	store := NewLetters(r.pool)
	for stream, want := range map[string]int{"": 16, OfCommands: 16, OfEvents: 0, "SCRIP_CMD_1": 1, "SCRIP_CMD_15": 1, "SCRIP_EVT_1": 0} {
		list, _, _, err := store.List(t.Context(), LetterFilter{Stream: stream})
		if err != nil || len(list) != want {
			t.Errorf("%q: %d dead letters, want %d (%v)", stream, len(list), want, err)
		}
	}
	if n, err := store.DiscardAll(t.Context(), LetterFilter{Stream: "SCRIP_CMD_1"}, "those of lane 1"); err != nil || n != 1 {
		t.Errorf("discarded %d, want 1 (%v)", n, err)
	}
}

// A cause is a reason without numbers: of what it has, all are discarded, and no others.
func TestCauses(t *testing.T) {
	r := newLetterRig(t)
	if _, err := r.pool.Exec(t.Context(), `INSERT INTO scrip_tables.checkpoint (projection, lane, sequence, updated_at, log, digest) VALUES ('tables', 0, 9, now(), 'the-log', 'd')`); err != nil {
		t.Fatal(err)
	}
	for n, reason := range []string{`n: 12 is more than 10`, `n: 13 is more than 10`, `customer_id: line 1 has it`, `customer_id: line 2 has it`, `customer_id: line 30 has it`, `customer_id: missing`} {
		if _, err := r.pool.Exec(t.Context(), `INSERT INTO scrip_tables.dead_letter (lane, sequence, line, event_sequence, event_line, at, stream, reason, payload)
			VALUES (0, $1::int, 1, $1::int, 1, now() + $1::int * interval '1 second', 'SCRIP_CMD_0', $2, 'p')`, n+1, reason); err != nil {
			t.Fatal(err)
		}
	}
	causes := func() (all string) {
		groups, err := r.Groups(t.Context(), "")
		streamtest.Must(t, err)
		for _, g := range groups.Items {
			all += fmt.Sprintf("%d %s of %s, %s; ", g.Count, g.Cause, g.Stream, g.Example)
		}
		return all
	}
	streamtest.Equal(t, "causes", causes(), `3 customer_id: line … has it of commands, SCRIP_CMD_0.5.1; 2 n: … is more than … of commands, SCRIP_CMD_0.2.1; 1 customer_id: missing of commands, SCRIP_CMD_0.6.1; `)
	if n, err := r.DiscardAll(t.Context(), LetterFilter{Cause: `customer_id: line … has it`}, "twice"); err != nil || n != 3 {
		t.Errorf("discarded %d, want 3 (%v)", n, err)
	}
	streamtest.Equal(t, "causes after it", causes(), `2 n: … is more than … of commands, SCRIP_CMD_0.2.1; 1 customer_id: missing of commands, SCRIP_CMD_0.6.1; `)
}
