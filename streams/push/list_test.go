package push_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/optout"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// many are customers of a long list.
func many(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("c", i)
	}
	return all
}

// Of a list of 5,000 the gateway refuses three: they alone are tried again and become dead letters.
func TestSomeOfAListAreRefused(t *testing.T) {
	r := newRig(t, 1)
	bad := []string{"c17", "c499", "c4999"}
	b := newBook()
	s := r.sender(t, push.Options{Tries: 3}, func(_ context.Context, batch []push.Reminder) error {
		b.record(batch)
		failed := &push.Partial{Err: errAway}
		for i := range batch {
			if slices.Contains(bad, batch[i].CustomerID) {
				failed.Failed = append(failed.Failed, i)
			}
		}
		if failed.Failed != nil {
			return failed
		}
		return nil
	})
	r.fire(t, 0, many(wire.MaxDueCustomers)...)
	r.until(t, "all are delivered or dead letters", func() bool { return s.Stats().Pushed == wire.MaxDueCustomers-3 && s.Stats().Dead == 3 })
	r.settled(t, "test")
	var dead []string
	for _, l := range r.letters(t, "test") {
		dead = append(dead, customers(l))
	}
	if got := strings.Join(dead, " "); got != strings.Join(bad, " ") {
		t.Errorf("dead letters of %s", got)
	}
	for _, c := range many(wire.MaxDueCustomers) {
		want := 1
		if slices.Contains(bad, c) {
			want = 3
		}
		if got := b.deliveries(c); got != want {
			t.Errorf("%s was tried %d times, want %d", c, got, want)
		}
	}
}

// The calls for one list run at once; the gateway is away in the middle of it, and what is high overtakes the rest.
func TestAListIsDelivered(t *testing.T) {
	r := newRig(t, 1)
	b := newBook()
	var mu sync.Mutex
	calls, atOnce, most := 0, 0, 0
	started, finish := make(chan struct{}), make(chan struct{})
	overtook := 0 // the calls before that of high
	s := r.sender(t, push.Options{Workers: 2, Batch: 100, Pause: short}, func(_ context.Context, batch []push.Reminder) error {
		mu.Lock()
		calls++
		n := calls
		atOnce++
		most = max(most, atOnce)
		if batch[0].CustomerID == "high" && overtook == 0 {
			overtook = n
		}
		mu.Unlock()
		defer func() {
			mu.Lock()
			atOnce--
			mu.Unlock()
		}()
		if n == 2 {
			close(started)
		}
		<-finish
		if n == 3 {
			return &push.Away{Err: errAway}
		}
		return b.push(t.Context(), batch)
	})
	r.fireOf(t, 0, "some", "low", many(wire.MaxDueCustomers)...)
	<-started
	r.fireOf(t, 0, "urgent", "high", "high")
	r.until(t, "high waits", func() bool {
		at, ok := r.positions(t, "test")
		return ok && at[0].Waiting == 3 && s.Stats().InFlight == 2 // both in the stream, and high set aside
	})
	close(finish)
	r.until(t, "all are delivered", func() bool { return s.Stats().Pushed == wire.MaxDueCustomers+1 })
	r.settled(t, "test")
	b.once(t, wire.MaxDueCustomers+1)
	if most != 2 || overtook > 12 {
		t.Errorf("%d calls at once; high was the %d. of %d calls", most, overtook, calls)
	}
}

// A process dies in the middle of a list: another one delivers it, and what was delivered before has the same keys.
func TestDiesInAList(t *testing.T) {
	r := newRig(t, 1)
	r.fire(t, 0, many(1_200)...)
	b := newBook()
	r.dies(t, push.Options{AckWait: short, Workers: 1}, b.record)
	s := r.sender(t, push.Options{AckWait: short}, b.push)
	r.until(t, "all are delivered by the other", func() bool { return s.Stats().Pushed == 1_200 })
	r.settled(t, "test")
	if b.size() != 1_200 || b.deliveries("c0") != 2 || b.deliveries("c1199") > 2 {
		t.Errorf("%d keys, the first was delivered %d times, the last %d times", b.size(), b.deliveries("c0"), b.deliveries("c1199"))
	}
}

// Who wants no reminders gets none, of a list, an entry or a dead letter; the others get theirs.
func TestOptedOut(t *testing.T) {
	r := newRig(t, 1)
	store := optout.NewStore(r.js)
	add := func(customer string) {
		t.Helper()
		_, err := store.Add(within(t), optout.Entry{CustomerID: customer})
		streamtest.Must(t, err)
	}
	add("bob")
	b := newBook()
	s := r.sender(t, push.Options{Tries: 1}, func(_ context.Context, batch []push.Reminder) error {
		b.record(batch)
		return &push.Refused{Err: errAway}
	})
	r.fire(t, 0, "ann", "bob", "cid")
	r.until(t, "two are dead letters", func() bool { return s.Stats().Dead == 2 && s.Stats().OptedOut == 1 })
	r.settled(t, "test")
	add("cid")
	done, err := push.Retry(within(t), r.js, push.Options{Name: "test"}, b.push)
	if err != nil || done != (push.Retried{Pushed: 1, OptedOut: 1}) || len(r.letters(t, "test")) > 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if b.deliveries("ann") != 2 || b.deliveries("bob") != 0 || b.deliveries("cid") != 1 {
		t.Errorf("delivered %v", b.names)
	}
	streamtest.Must(t, s.stop())
	if at, ok := r.positions(t, "test"); !ok || at[0].OptedOut != 1 || at[0].Delivered != 0 || at[0].Dead != 2 {
		t.Errorf("%+v", at)
	}
}

// What is held back comes by way of SCRIP_PUSH_OUT: merged into one delivery, and without what is withheld.
func TestHeldBack(t *testing.T) {
	r := newRig(t, 1)
	h := eventlog.Header{Owner: "test", Source: eventlog.Source{Sequence: 1, Line: 1, LastR: 3}, SourceDigest: strings.Repeat("0", 32), Hold: true}
	r.publish(t, 0, h, dueOf("summer", 1, "ann", "bob")+"\n")
	marked := func(line, mark string) string {
		return strings.Replace(line, `"customer_ids"`, mark+`,"customer_ids"`, 1) + "\n"
	}
	payload := dueOf("summer", 1, "ann", "bob") + "\n" + marked(dueOf("winter", 7, "ann", "bob"), `"merged":true`) + marked(dueOf("spring", 1, "cy"), `"withheld":"cap"`) +
		dueOf("spring", 2, "dee") + "\n" + marked(dueOf("autumn", 1, "eve", "fay"), `"merged":true`) // of other customers
	_, err := r.js.PublishMsg(within(t), &nats.Msg{Subject: topology.PushOut, Header: streamtest.Sealed(eventlog.Header{Owner: "test", Priority: "high"}.Encode()), Data: []byte(payload)})
	streamtest.Must(t, err)
	b := newBook()
	s := r.sender(t, push.Options{Tries: 1}, func(_ context.Context, batch []push.Reminder) error {
		b.record(batch)
		for i, got := range batch {
			if got.CustomerID == "bob" {
				return &push.Partial{Failed: []int{i}, Err: errAway}
			}
		}
		return nil
	})
	r.until(t, "all are done", func() bool { return s.Stats().Pushed == 2 && s.Stats().Dead == 1 && s.Stats().Skipped == 1 })
	r.settled(t, "test")
	b.once(t, 3)
	l := r.letters(t, "test")
	if len(l) != 1 || len(l[0].Reminders) != 1 || l[0].Stream != topology.PushOutStream {
		t.Fatalf("%+v", l)
	}
	if one := l[0].Reminders[0]; one.Campaign != "summer" || one.R != 2 || len(one.Also) != 1 || one.Also[0].Campaign != "winter" || one.Also[0].R != 8 {
		t.Errorf("%+v", one)
	}
	done, err := push.Retry(within(t), r.js, push.Options{Name: "test"}, b.push)
	if err != nil || done.Pushed != 1 {
		t.Errorf("%+v, %v", done, err)
	}
}
