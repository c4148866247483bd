package push_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

var (
	discard = slog.New(slog.DiscardHandler)
	errAway = errors.New("the gateway is away")
)

// Three processes share a name, two more start and end: every customer is handed over once.
func TestEachCustomerOnce(t *testing.T) {
	r := newRig(t, 2)
	want := 0
	fire := func(round int) {
		for i := range 20 {
			n := []int{1, 2, 500, 37}[i%4]
			r.fire(t, i%2, names(fmt.Sprintf("%d-%d", round, i), n)...)
			want += n
		}
	}
	fire(0)
	b := newBook()
	var all []*sender
	for range 3 {
		all = append(all, r.sender(t, push.Options{Batch: 100}, b.push))
	}
	fire(1)
	for range 2 {
		guest := r.sender(t, push.Options{Workers: 1}, b.push)
		r.until(t, "a reminder is delivered", func() bool { return b.size() > 0 })
		streamtest.Must(t, guest.stop())
		all = append(all, guest)
	}
	fire(2)
	r.until(t, "the reminder of everybody is delivered", func() bool { return b.size() >= want })
	r.settled(t, "test")
	b.once(t, want)
	var pushed uint64
	for _, s := range all {
		streamtest.Must(t, s.stop())
		st := s.Stats()
		pushed += st.Pushed
		if st.FailedTries+st.Dead+st.Skipped+st.Repeated != 0 || st.InFlight+st.Calling+st.Hanging != 0 {
			t.Errorf("nothing failed, but %+v", st)
		}
	}
	if err := all[0].Run(t.Context(), b.push); err == nil || !strings.Contains(err.Error(), "once") {
		t.Errorf("a second Run returned %v", err)
	}
	if pushed != uint64(want) {
		t.Errorf("the senders count %d customers, want %d", pushed, want)
	}
	if l := r.letters(t, ""); len(l) != 0 {
		t.Errorf("dead letters %v", l)
	}
}

// Where a name starts: with what fires from now on, or from a time, or from the start.
func TestSince(t *testing.T) {
	r := newRig(t, 1)
	r.fire(t, 0, "old")
	start := func(name string, since push.Since) *book {
		b := newBook()
		r.sender(t, push.Options{Name: name, Since: since}, b.push)
		r.until(t, "the consumer is there", func() bool { _, ok := r.positions(t, name); return ok })
		return b
	}
	fresh := start("fresh", push.Since{}) // the zero value delivers nothing that is over
	all := start("all", push.FromStart())
	before := start("before", push.From(time.Now().Add(-time.Hour)))
	ahead := start("ahead", push.From(time.Now().Add(time.Hour)))
	r.fire(t, 0, "new")
	for _, got := range []*book{all, before} {
		r.until(t, "both are delivered", func() bool { return got.deliveries("old") == 1 && got.deliveries("new") == 1 })
	}
	for _, got := range []*book{fresh, ahead} {
		r.until(t, "the reminder of new is delivered", func() bool { return got.deliveries("new") == 1 })
		if got.deliveries("old") != 0 {
			t.Error("old was delivered although the name starts later")
		}
	}
}

// A function slower than AckWait is not called again: the server gets progress reports.
func TestSlowIsNotDead(t *testing.T) {
	t.Parallel() // it waits for AckWait, which is long enough for a report of a busy machine
	const ackWait = 2400 * time.Millisecond
	r := newRig(t, 1)
	r.fire(t, 0, "ann")
	b := newBook()
	beats := make(chan struct{}, 100)
	if _, err := r.js.Conn().Subscribe("$JS.ACK."+topology.RmdStream(0)+".test.>", func(m *nats.Msg) {
		if string(m.Data) == "+WPI" {
			beats <- struct{}{}
		}
	}); err != nil {
		t.Fatal(err)
	}
	finish := make(chan struct{})
	f := func(ctx context.Context, batch []push.Reminder) error {
		b.record(batch)
		<-finish
		return nil
	}
	first := r.sender(t, push.Options{AckWait: ackWait}, f)
	second := r.sender(t, push.Options{AckWait: ackWait}, f)
	// For longer than AckWait one of them reports progress, and the other gets nothing.
	for range 4 {
		<-beats
	}
	close(finish)
	r.settled(t, "test")
	b.once(t, 1)
	_, _ = first.stop(), second.stop()
	streamtest.Equal(t, "delivered again", first.Stats().Repeated+second.Stats().Repeated, 0)
}

// A function that hangs each time would leak without end: Run reports it and ends.
func TestHangsAlways(t *testing.T) {
	r := newRig(t, 1)
	for i := range 12 {
		r.fire(t, 0, fmt.Sprint(i))
	}
	release := make(chan struct{})
	defer close(release)
	s := r.sender(t, push.Options{Workers: 1, Timeout: 10 * time.Millisecond, Tries: 100, Grace: -1}, func(context.Context, []push.Reminder) error {
		<-release
		return nil
	})
	<-s.done
	if !errors.Is(s.err, push.ErrHangs) {
		t.Errorf("Run returned %v", s.err)
	}
}

// Delivered reminders are not delivered again; what fails comes again under the same keys; those that cannot be delivered become a
// dead letter, alone.
func TestFailsForSome(t *testing.T) {
	r := newRig(t, 1)
	r.fire(t, 0, "ann", "bob", "cid", "dot")
	b := newBook()
	var mu sync.Mutex
	var batches []int // sizes
	f := func(ctx context.Context, batch []push.Reminder) error {
		mu.Lock()
		batches = append(batches, len(batch))
		mu.Unlock()
		b.record(batch)
		var failed []int
		for i, c := range batch {
			if c.CustomerID == "bob" || c.CustomerID == "dot" && b.deliveries("dot") == 1 {
				failed = append(failed, i, i)
			}
		}
		if failed != nil {
			return &push.Partial{Failed: failed, Err: errAway}
		}
		return nil
	}
	one := r.sender(t, push.Options{Tries: 3}, f)
	two := r.sender(t, push.Options{Tries: 3}, f)
	r.until(t, "a dead letter", func() bool { return one.Stats().Dead+two.Stats().Dead == 1 })
	r.settled(t, "test")
	if b.deliveries("ann") != 1 || b.deliveries("cid") != 1 || b.deliveries("dot") != 2 || b.deliveries("bob") != 3 || b.size() != 4 {
		t.Errorf("deliveries %v under keys %v", b.names, b.keys)
	}
	if fmt.Sprint(batches) != "[4 2 1]" {
		t.Errorf("batches of %v", batches)
	}
	streamtest.Equal(t, "counted as pushed", one.Stats().Pushed+two.Stats().Pushed, 3)
	if l := r.letters(t, "test"); len(l) != 1 || customers(l[0]) != "bob" || !strings.Contains(l[0].Error, "the gateway is away") {
		t.Errorf("dead letters %+v", l)
	}
}

// N failures are a dead letter with the reason, exactly one, and the rest goes on. Letters can be tried again.
func TestDeadLetter(t *testing.T) {
	r := newRig(t, 2)
	seq := r.fire(t, 1, "ann", "bad")
	r.fire(t, 1, "bob")
	b := newBook()
	dead := make(chan push.DeadLetter, 10)
	s := r.sender(t, push.Options{Tries: 3, OnDead: func(l push.DeadLetter) { dead <- l }}, func(ctx context.Context, batch []push.Reminder) error {
		b.record(batch)
		if len(batch) > 1 {
			return &push.Refused{Err: fmt.Errorf("refused by\nthe %w", errAway)}
		}
		return nil
	})
	letter := <-dead
	r.until(t, "the reminder of bob is delivered", func() bool { return b.deliveries("bob") == 1 })
	r.settled(t, "test")
	if b.deliveries("ann") != 3 || b.deliveries("bad") != 3 {
		t.Errorf("tried %v", b.names)
	}
	got := r.letters(t, "")
	if len(got) != 1 {
		t.Fatalf("dead letters %+v", got)
	}
	l := got[0]
	if l.ID == 0 || l.ID != letter.ID || l.Name != "test" || l.Lane != 1 || l.Stream != topology.RmdStream(1) || l.Sequence != seq || l.Tries != 3 ||
		l.Error != "refused by the the gateway is away" || customers(l) != "ann bad" || l.At.IsZero() {
		t.Errorf("the dead letter is %+v", l)
	}
	if want := fmt.Sprintf("%s/summer/%d/", r.log.UUID, l.Reminders[0].R); !strings.HasPrefix(l.Reminders[0].Key, want) || l.Reminders[0].R == 0 || l.Reminders[0].Before != wire.Period(time.Minute) || l.Reminders[0].Kind != "opens" || l.Reminders[0].Campaign != "summer" ||
		!l.Reminders[0].DueAt.Equal(time.Unix(2, 0)) || !l.Reminders[0].At.Equal(time.Unix(1, 0)) {
		t.Errorf("the first of them is %+v, its key should start with %s", l.Reminders[0], want)
	}
	if st := s.Stats(); st.Dead != 2 || st.FailedTries != 3 || st.Pushed != 1 {
		t.Errorf("%+v", st)
	}

	// Tried again it fails for one, then for none.
	opts := push.Options{Name: "test"}
	done, err := push.Retry(within(t), r.js, opts, func(_ context.Context, batch []push.Reminder) error {
		return &push.Partial{Failed: []int{1}, Err: errors.New("no such device")}
	})
	if err != nil || done != (push.Retried{Pushed: 1, Left: 1}) {
		t.Errorf("%+v, %v", done, err)
	}
	if got = r.letters(t, "test"); len(got) != 1 || customers(got[0]) != "bad" || got[0].Tries != 4 || !strings.Contains(got[0].Error, "no such device") || got[0].Sequence != seq {
		t.Errorf("dead letters %+v", got)
	}
	if done, err = push.Retry(within(t), r.js, opts, b.push); err != nil || done != (push.Retried{Pushed: 1}) {
		t.Errorf("%+v, %v", done, err)
	}
	if got = r.letters(t, ""); len(got) != 0 || b.deliveries("bad") != 4 {
		t.Errorf("dead letters %+v; bad was delivered %d times", got, b.deliveries("bad"))
	}
	if l := r.letters(t, "other"); len(l) != 0 {
		t.Errorf("another name has %v", l)
	}
}

func TestOptions(t *testing.T) {
	r := newRig(t, 1)
	for want, o := range map[string]push.Options{
		"Name is \"\"":        {},
		"Name is \"a.b\"":     {Name: "a.b"},
		"Workers is -1":       {Name: "x", Workers: -1},
		"Batch is 501":        {Name: "x", Batch: 501},
		"Tries is -2":         {Name: "x", Tries: -2},
		"Unacked is 100001":   {Name: "x", Unacked: 100_001},
		"Timeout is 1µs":      {Name: "x", Timeout: time.Microsecond},
		"Pause is -1s":        {Name: "x", Pause: -time.Second},
		"AckWait is 99ms; gi": {Name: "x", AckWait: 99 * time.Millisecond},
		"MaxAge is 1ms; give": {Name: "x", MaxAge: time.Millisecond},
	} {
		if _, err := push.New(r.js, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	for l, err := range push.Letters(t.Context(), r.js, "a b") {
		if err == nil {
			t.Errorf("letters of a name that is none: %+v", l)
		}
	}
}
