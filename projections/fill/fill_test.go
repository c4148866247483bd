package fill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/segments"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) { os.Exit(projtest.Main(m)) }

func claim(n int) string {
	return fmt.Sprintf(`{"type":"coupon.claimed","campaign":"c0","at":"@","n":%d,"code":"C%d","customer_id":"x"}`, n, n)
}

const remind = `{"type":"reminder.set","campaign":"c0","at":"@","r":1,"customer_id":"ann","kind":"expires","before":"1h","n":1}`

const created = `{"type":"campaign.created","campaign":"c0","at":"@","number":1,"codes":1000,"max_redemptions":1}`

func open(t *testing.T, r *projtest.Rig) *eventlog.Reader {
	t.Helper()
	reader, err := eventlog.Events(r.JS, 0).In(r.Log).Open(t.Context(), r.Log.UUID, eventlog.Position{Log: r.Log.UUID}, eventlog.ReaderOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	return reader
}

// A batch ends at its limits and at the last message wanted, whatever arrives, and waits only for its first message.
func TestBatchesEndWhereTheyShould(t *testing.T) {
	t.Parallel()
	r := projtest.New(t)
	for i := range 40 {
		r.Write(0, claim(2*i), claim(2*i+1))
	}
	for _, c := range []struct {
		limits Limits
		last   uint64
		most   int // messages in a batch
	}{
		{Limits{Lines: 1}, 40, 1},
		{Limits{Lines: 2}, 40, 2}, // as many messages as lines are wanted are taken at once
		{Limits{Lines: 3}, 7, 3},
		{Limits{Bytes: 1}, 33, takeMessages},
		{Limits{}, 40, 40},
		{Limits{}, 5, 5},
	} {
		limits, reader := c.limits.OrDefault(), open(t, r)
		var b Batch
		var taken uint64
		for taken < c.last {
			for b.Reset(); !b.Full(limits) && reader.Sequence() < c.last; {
				if err := b.Wait(t.Context(), reader, limits, c.last); err != nil {
					t.Fatal(err)
				}
			}
			for i := range b.Messages {
				if taken++; b.Messages[i].Sequence != taken {
					t.Fatalf("%+v: message %d, want %d", c, b.Messages[i].Sequence, taken)
				}
			}
			if taken > c.last || len(b.Messages) > c.most {
				t.Errorf("%+v: %d messages in a batch, after it %d are taken", c, len(b.Messages), taken)
			}
		}
	}
}

// A message that this version does not understand ends a batch; the messages before it come first.
func TestMessagesBeforeAnErrorComeFirst(t *testing.T) {
	t.Parallel()
	r := projtest.New(t)
	r.Write(0, claim(1))
	r.Write(0, claim(2))
	r.Publish(0, nats.Header{topology.HeaderFormat: {"9"}, topology.HeaderSeal: {strings.Repeat("A", 43)}}, nil)
	r.Write(0, claim(3))
	limits, reader := Limits{}.OrDefault(), open(t, r)
	var b Batch
	for len(b.Messages) < 2 {
		if err := b.Wait(t.Context(), reader, limits, math.MaxUint64); err != nil {
			t.Fatal(err)
		}
	}
	var stop *eventlog.StopError
	if err := b.Wait(t.Context(), reader, limits, math.MaxUint64); !errors.As(err, &stop) || stop.Sequence != 3 || len(b.Messages) != 2 {
		t.Errorf("%d messages, %v", len(b.Messages), err)
	}
}

type lane struct {
	t    *testing.T
	pool *pgxpool.Pool
	Tables
}

func newLane(t *testing.T, r *projtest.Rig, pool *pgxpool.Pool) *lane {
	t.Helper()
	l := &lane{t, pool, Tables{DB: pool, Schema: "scrip_1", Log: r.Log.UUID}}
	if err := l.Load(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lane) text(sql string) (value string) {
	l.t.Helper()
	if err := l.pool.QueryRow(l.t.Context(), sql).Scan(&value); err != nil {
		l.t.Fatal(err)
	}
	return value
}

// taken returns the first messages of lane 0.
func taken(t *testing.T, r *projtest.Rig, many int) (b Batch) {
	t.Helper()
	for reader := open(t, r); len(b.Messages) < many; {
		if err := b.Wait(t.Context(), reader, Limits{}.OrDefault(), uint64(many)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func parse(messages []eventlog.Message, keep func(*tables.Line) bool) (lines []tables.Line) {
	for i := range messages {
		lines = Parse(lines, &messages[i], keep)
	}
	return lines
}

const stateSQL = `SELECT concat_ws(' ', (SELECT count(*) FROM scrip_tables.coupon_row), (SELECT count(*) FROM scrip.dead_letter), (SELECT sequence FROM scrip.checkpoint))`

// Data that PostgreSQL rejects becomes a dead letter, line by line; all else of the batch is applied. Lines after the last
// message are applied, and the checkpoint stays before theirs. Who was overtaken changes nothing. No commit sends a notification.
func TestRejectedLinesAndTheFence(t *testing.T) {
	t.Parallel()
	r := projtest.New(t)
	pool := projtest.Pool(t, projtest.URL(t))
	if _, err := schema.Ensure(t.Context(), pool, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	r.Write(0, created)
	r.Write(0, claim(1), claim(2), remind)
	r.Write(0, claim(3))
	r.Write(0, remind, claim(4)) // the row is there already
	r.Write(0, claim(5), claim(6))
	b := taken(t, r, 5)
	listener, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err == nil {
		_, err = listener.Exec(t.Context(), "LISTEN scrip_checkpoint")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close(context.Background()) //nolint:errcheck
	l, overtaken := newLane(t, r, pool), newLane(t, r, pool)
	commits := 0
	l.Applied = func(*tables.Batch, []eventlog.Message, []tables.Parked) { commits++ }
	if err := l.Apply(t.Context(), b.Messages[:2], parse(b.Messages[:2], nil)); err != nil || commits != 1 {
		t.Fatal(err, commits)
	}
	// In a batch of its own: within one, the fold itself finds that the row is there.
	upToFive := func(line *tables.Line) bool { return line.Event.N != 6 }
	if err := l.Apply(t.Context(), b.Messages[2:4], parse(b.Messages[2:], upToFive)); err != nil {
		t.Fatal(err)
	}
	if got := l.text(stateSQL); got != "5 1 4" || l.At.Sequence != 4 || commits != 4 {
		t.Errorf("coupons, dead letters, checkpoint: %s, position %d after %d commits", got, l.At.Sequence, commits)
	}
	if err := overtaken.Apply(t.Context(), b.Messages[4:], parse(b.Messages[4:], nil)); !errors.Is(err, ErrFenced) || !strings.Contains(err.Error(), "lane 0") {
		t.Errorf("overtaken: %v", err)
	}
	if got := l.text(stateSQL); got != "5 1 4" {
		t.Errorf("overtaken, it changed rows: %s", got)
	}
	if again := newLane(t, r, pool); again.At != l.At || again.Clock != l.Clock {
		t.Errorf("read again: %+v, %v; committed: %+v, %v", again.At, again.Clock, l.At, l.Clock)
	}
	// A commit that notifies fails while the queue of notifications is full, which one listener can make it.
	if _, err := listener.Exec(t.Context(), "NOTIFY scrip_checkpoint, 'end'"); err != nil {
		t.Fatal(err)
	}
	if n, err := listener.WaitForNotification(t.Context()); err != nil || n.Payload != "end" {
		t.Errorf("a commit notifies: %v %v", n, err)
	}
}

// An error of segments or of COMMIT is not the lines' fault, whatever its SQLSTATE: the batch is not divided, and there are no
// dead letters. A process whose segments another one has opened writes nothing.
func TestErrorsBesideTheLines(t *testing.T) {
	t.Parallel()
	r := projtest.New(t)
	pool := projtest.Pool(t, projtest.URL(t))
	if _, err := schema.Ensure(t.Context(), pool, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	r.Write(0, created)
	r.Write(0, claim(1), claim(2))
	b := taken(t, r, 2)
	lines := parse(b.Messages, nil)
	l, commits := newLane(t, r, pool), 0
	full := &pgconn.PgError{Code: "54000", Message: "too many notifications in the NOTIFY queue"}
	l.Commit = func(context.Context, pgx.Tx) error { commits++; return full }
	if err := l.Apply(t.Context(), b.Messages, lines); !errors.Is(err, full) || commits != 1 {
		t.Errorf("%d commits: %v", commits, err)
	}
	var err error
	if l.Segments, err = segments.Open(t.Context(), pool, "scrip_1", segments.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := segments.Open(t.Context(), pool, "scrip_1", segments.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := l.Apply(t.Context(), b.Messages, lines); !errors.Is(err, ErrFenced) || commits != 1 {
		t.Errorf("overtaken, %d commits: %v", commits, err)
	}
	if got := l.text(stateSQL); got != "0 0 0" {
		t.Errorf("coupons, dead letters, checkpoint: %s", got)
	}
}
