package readmodel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/push/hold"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// rig is a log with reminders, a database, and a keeper that may be started.
type rig struct {
	*projtest.Rig
	t    *testing.T
	pool *pgxpool.Pool
	n    uint64
	kept *Keeper // that runs
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return &rig{Rig: projtest.New(t), t: t, pool: database(t)}
}

// keep runs a keeper until the returned function is called.
func (r *rig) keep() (stop func()) {
	k := NewKeeper(r.pool, r.JS, KeeperOptions{Clock: projtest.Hurried, Logger: streamtest.Logger(r.t)})
	k.ended.Watch()
	r.kept = k
	return streamtest.Background(r.t, k.Run)
}

// fire publishes a message of reminders on lane 0.
func (r *rig) fire(customers ...string) {
	r.t.Helper()
	r.n++
	lines := append(streamtest.Due("summer", 1_000*r.n, customers...), '\n')
	h := eventlog.Header{Owner: "test", Source: eventlog.Source{Sequence: r.n, Line: 1, LastR: 1}, SourceDigest: strings.Repeat("0", 32)}
	if _, err := r.JS.PublishMsg(r.t.Context(), &nats.Msg{Subject: topology.Rmd(0), Header: streamtest.Sealed(h.Encode()), Data: lines}); err != nil {
		r.t.Fatal(err)
	}
}

var pushOptions = push.Options{Name: "mobile", Since: push.FromStart(), Tries: 1, Logger: slog.New(slog.DiscardHandler)}

// gateway refuses every customer whose name starts with bad.
func gateway(_ context.Context, batch []push.Reminder) error {
	var failed []int
	for i, r := range batch {
		if strings.HasPrefix(r.CustomerID, "bad") {
			failed = append(failed, i)
		}
	}
	if failed != nil {
		return &push.Partial{Failed: failed, Err: errors.New("no such device")}
	}
	return nil
}

// deliver runs a sender until it has handled so many customers.
func (r *rig) deliver(customers uint64) {
	r.t.Helper()
	p, err := push.New(r.JS, pushOptions)
	streamtest.Must(r.t, err)
	stop := streamtest.Background(r.t, func(ctx context.Context) error { return p.Run(ctx, gateway) })
	streamtest.Eventually(r.t, "the sender is done", func() bool { s := p.Stats(); return s.Pushed+s.Dead == customers && s.InFlight == 0 })
	stop()
}

// shows waits until a query returns a text: after each round of the keeper that was started last.
func (r *rig) shows(query, want string) {
	r.t.Helper()
	for {
		got := ""
		streamtest.Must(r.t, r.pool.QueryRow(r.t.Context(), query).Scan(&got))
		if got == want {
			return
		}
		if err := r.kept.ended.Wait(r.t); err != nil {
			r.t.Logf("%s: %q, want %q: %v", query, got, want, err)
		}
	}
}

const (
	audience = `SELECT coalesce(string_agg(concat_ws(' ', name, lane, delivered, dead, failed_tries, waiting, oldest_waiting_at IS NOT NULL), ', '), '')
FROM scrip_meta.push_audience WHERE lane = 0`
	letters = `SELECT coalesce(string_agg(concat_ws(' ', name, lane, sequence, line, campaign, kind, customer_id, reason, tries), ', ' ORDER BY name, lane, sequence, line), '')
FROM scrip_meta.push_dead_letter`
	count = `SELECT count(*)::text FROM scrip_meta.push_dead_letter`
)

// TestTables: the tables follow what senders do: delivered, waiting, dead, retried without and with success. Two keepers change
// nothing. What becomes of schema scrip does not matter.
func TestTables(t *testing.T) {
	r := newRig(t)
	defer r.keep()()
	defer r.keep()()
	r.fire("ann", "bad-1", "bad-2")
	r.deliver(3)
	r.shows(audience, "mobile 0 1 2 1 0 f")
	r.shows(letters, "mobile 0 1 1 summer opens bad-1 2 not delivered: no such device 1, mobile 0 1 2 summer opens bad-2 2 not delivered: no such device 1")

	r.fire("ben")
	r.shows(audience, "mobile 0 1 2 1 1 t")
	r.deliver(1)
	r.shows(audience, "mobile 0 2 2 1 0 f")

	// A letter that is written again has one customer less.
	one := func(_ context.Context, batch []push.Reminder) error {
		return &push.Partial{Failed: []int{1}, Err: errors.New("still none")}
	}
	if _, err := push.Retry(t.Context(), r.JS, pushOptions, one); err != nil {
		t.Fatal(err)
	}
	r.shows(letters, "mobile 0 1 1 summer opens bad-2 1 not delivered: still none 2")

	kv, err := r.JS.KeyValue(t.Context(), push.Bucket)
	streamtest.Must(t, err)
	_, err = kv.Put(t.Context(), hold.Key, []byte(`{"format":1,"sent":5,"merged":4,"quiet":3,"cap":2,"held":1,"at":"2026-11-28T00:00:00Z"}`))
	streamtest.Must(t, err)
	r.shows("SELECT coalesce(string_agg(concat_ws(' ', sent, merged, withheld_quiet, withheld_cap, held), ','), '') FROM scrip_meta.push_held", "5 4 3 2 1")

	exec(t, r.pool, "DROP SCHEMA scrip CASCADE")
	ensure(t, r.pool)
	r.shows(letters, "mobile 0 1 1 summer opens bad-2 1 not delivered: still none 2")

	// A customer leaves the table with the letter.
	if _, err := push.Retry(t.Context(), r.JS, pushOptions, func(context.Context, []push.Reminder) error { return nil }); err != nil {
		t.Fatal(err)
	}
	r.shows(letters, "")
	streamtest.Must(t, push.Forget(t.Context(), r.JS, "mobile", projtest.Lanes))
	r.shows(audience, "")
}

// TestManyLetters: more than one batch of them, letters that PostgreSQL could not store as they are, and messages that are no
// letters. Tables that were emptied, and a stream that was made again, are filled again.
func TestManyLetters(t *testing.T) {
	r := newRig(t)
	r.fire("bad")
	r.deliver(1)
	const many = 450
	write := func(n int, customer string) {
		t.Helper()
		m := nats.NewMsg(fmt.Sprintf("scrip.push.dead.mobile.1.%d.7.0", n))
		m.Header.Set("Scrip-Push-Tries", "1")
		m.Header.Set("Scrip-Push-Error", "none")
		var err error
		if m.Data, err = json.Marshal(push.Reminder{Key: "k", Campaign: "summer", Kind: "opens", CustomerID: customer}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.JS.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for n := range many {
		write(n+1, fmt.Sprint("c", n))
	}
	write(many+1, "a\x00b")
	if _, err := r.JS.Publish(t.Context(), "scrip.push.dead.nonsense", []byte("x")); err != nil {
		t.Fatal(err)
	}
	write(many+2, "last")
	stop := r.keep()
	r.shows(count, fmt.Sprint(many+3))
	r.shows(`SELECT string_agg(customer_id, ' ' ORDER BY sequence, line) FROM scrip_meta.push_dead_letter WHERE sequence > 449`, `c449 a�b last`)
	stop()

	exec(t, r.pool, "TRUNCATE scrip_meta.push_dead_letter_row, scrip_meta.push_audience")
	stop = r.keep()
	r.shows(count, fmt.Sprint(many+3))

	stream, err := r.JS.Stream(t.Context(), push.DeadStream)
	streamtest.Must(t, err)
	config := stream.CachedInfo().Config
	streamtest.Must(t, r.JS.DeleteStream(t.Context(), push.DeadStream))
	if _, err := r.JS.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	write(1, "new")
	r.shows(`SELECT coalesce(string_agg(customer_id, ' '), '') FROM scrip_meta.push_dead_letter`, "new")
	stop()
}

// TestARoundIsNoTransaction: while NATS does not answer, a keeper has no transaction open, and another one leaves the round to it. A
// round that has lasted for too long is taken over, and what is written for it then is not.
func TestARoundIsNoTransaction(t *testing.T) {
	r := newRig(t)
	link := streamtest.NewLink(t, strings.TrimPrefix(r.Server.ClientURL(), "nats://"))
	js, err := jetstream.New(streamtest.Connect(t, "nats://"+link.Addr(), nats.UserInfo(streamtest.ServersUser, streamtest.ServersPassword), nats.IgnoreDiscoveredServers()))
	streamtest.Must(t, err)
	cut := NewKeeper(r.pool, js, KeeperOptions{})
	other := NewKeeper(r.pool, r.JS, KeeperOptions{})
	r.fire("bad")
	r.deliver(1)

	link.Cut(true, true)
	ended := make(chan error, 1)
	go func() { ended <- cut.round(t.Context()) }()
	shown := func(sql string) (text string) {
		streamtest.Must(t, r.pool.QueryRow(t.Context(), sql).Scan(&text))
		return text
	}
	streamtest.Eventually(t, "a round has begun", func() bool { return shown("SELECT count(began_at)::text FROM scrip_meta.push_round") == "1" })
	streamtest.Equal(t, "transactions that wait", shown("SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"), "0")
	streamtest.Must(t, other.round(t.Context()))
	streamtest.Equal(t, "letters", shown(count), "0")
	for _, began := range []string{"- interval '61s'", "+ interval '1h'"} { // a clock that was put back
		exec(t, r.pool, "UPDATE scrip_meta.push_round SET began_at = clock_timestamp() "+began)
		streamtest.Must(t, other.round(t.Context()))
		streamtest.Equal(t, "letters", shown(count), "1")
	}
	link.Heal()
	if err := <-ended; !errors.Is(err, errOvertaken) {
		t.Errorf("the former round: %v", err)
	}
	streamtest.Equal(t, "rounds that go on", shown("SELECT count(began_at)::text FROM scrip_meta.push_round"), "0")
}

// TestAFailedRoundIsOver: the next one need not wait for it.
func TestAFailedRoundIsOver(t *testing.T) {
	r := newRig(t)
	k := NewKeeper(r.pool, r.JS, KeeperOptions{})
	exec(t, r.pool, "ALTER TABLE scrip_meta.push_audience RENAME TO away")
	r.fire("bad")
	r.deliver(1)
	if err := k.round(t.Context()); err == nil {
		t.Error("it did not fail")
	}
	exec(t, r.pool, "ALTER TABLE scrip_meta.away RENAME TO push_audience")
	streamtest.Must(t, k.round(t.Context()))
	var n string
	streamtest.Must(t, r.pool.QueryRow(t.Context(), count).Scan(&n))
	streamtest.Equal(t, "letters", n, "1")
}
