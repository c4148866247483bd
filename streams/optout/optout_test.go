package optout_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/access/natsauth/authtest"
	"github.com/seed-4a2410e3/scrip/streams/optout"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

func newLog(t *testing.T) jetstream.JetStream {
	t.Helper()
	js := streamtest.Start(t, authtest.Servers(1)).JetStream(t)
	_, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, KeyFingerprint: "test"})
	streamtest.Must(t, err)
	return js
}

// A list is as the store left it, whoever follows it from when on, and whatever characters ids have.
func TestListsFollowTheStore(t *testing.T) {
	js := newLog(t)
	store := optout.NewStore(js)
	early := optout.NewList(js)
	defer early.Close()
	names := []string{"ann", "bob >*. /", "Zoë", "a", "\"x\""}
	is := func(want ...string) {
		t.Helper()
		late := optout.NewList(js)
		defer late.Close()
		for _, l := range []*optout.List{early, late} {
			out, err := l.Of(t.Context(), append([]string{"other"}, names...))
			streamtest.Must(t, err)
			var got []string
			for _, n := range names {
				if out[n] {
					got = append(got, n)
				}
			}
			if !slices.Equal(got, want) || len(out) != len(want) {
				t.Errorf("%v are in the list, want %v", out, want)
			}
		}
	}
	is()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, n := range names {
		if e, err := store.Add(t.Context(), optout.Entry{CustomerID: n, At: at, By: "sue", Reason: "letter"}); err != nil || e.By != "sue" {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	is(names...)
	if e, err := store.Add(t.Context(), optout.Entry{CustomerID: "ann", At: at.Add(time.Hour), By: "tom"}); err != nil || e.By != "sue" || !e.At.Equal(at) {
		t.Errorf("added again: %+v, %v", e, err)
	}
	streamtest.Must(t, store.Remove(t.Context(), "a"))
	streamtest.Must(t, store.Remove(t.Context(), "nobody"))
	is("ann", "bob >*. /", "Zoë", "\"x\"")
	if _, ok, err := store.Get(t.Context(), "a"); ok || err != nil {
		t.Errorf("removed, and there: %t, %v", ok, err)
	}
	if e, ok, err := store.Get(t.Context(), "Zoë"); !ok || err != nil || e.CustomerID != "Zoë" || e.Reason != "letter" {
		t.Errorf("%+v, %t, %v", e, ok, err)
	}
	_, err := store.Add(t.Context(), optout.Entry{CustomerID: "a", At: at})
	streamtest.Must(t, err)
	is(names...)
}

// No call starts after Add was answered, however looks and changes fall together.
func TestNoCallAfterTheAnswer(t *testing.T) {
	js := newLog(t)
	store := optout.NewStore(js)
	const customers = 20
	var names []string
	for i := range customers {
		names = append(names, fmt.Sprint("c", i))
	}
	type look struct {
		call time.Time // the latest start of its call
		out  map[string]bool
	}
	var mu sync.Mutex // guards the next two
	answered := map[string]time.Time{}
	var looks []look
	var adding, calling sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		calling.Go(func() {
			l := optout.NewList(js)
			defer l.Close()
			for {
				select {
				case <-stop:
					return
				default:
				}
				call := time.Now().Add(optout.LookFor)
				out, err := l.Of(t.Context(), names)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				looks = append(looks, look{call, out})
				mu.Unlock()
			}
		})
	}
	for _, name := range names {
		adding.Go(func() {
			if _, err := store.Add(t.Context(), optout.Entry{CustomerID: name}); err != nil {
				t.Error(err)
				return
			}
			now := time.Now()
			mu.Lock()
			answered[name] = now
			mu.Unlock()
		})
	}
	adding.Wait()
	close(stop)
	calling.Wait()
	for _, l := range looks {
		for name, since := range answered {
			if !l.out[name] && l.call.After(since) {
				t.Fatalf("%s may be called %s after the answer", name, l.call.Sub(since))
			}
		}
	}
}

// Without the server it is not known who wants none, and that is an error.
func TestNotKnown(t *testing.T) {
	server := streamtest.Start(t, authtest.Servers(1))
	l := optout.NewList(server.JetStream(t))
	defer l.Close()
	if out, err := l.Of(t.Context(), []string{"ann"}); err == nil {
		t.Errorf("without a log: %v", out)
	}
}
