package eventlog_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// While a stream has no leader its followers answer STREAM.INFO from copies that lag, other requests are answered with
// 10008, and some are not answered at all. None of that is what a read returns.
func TestReadsWaitForTheLeader(t *testing.T) {
	s := streamtest.Start(t)
	y := streamtest.NewRelay(t, s)
	newLog(t, s.JetStream(t), 1)
	write(t, s.JetStream(t), "a", 1, 20)
	events := eventlog.Events(y.JetStream, lane)
	for name, instead := range map[string]func(real func() []byte) []byte{
		"a follower that lags": func(real func() []byte) []byte { return streamtest.Behind(t, real(), 5, "") },
		"10008":                func(func() []byte) []byte { return streamtest.Unavailable },
		"no answer":            func(func() []byte) []byte { return streamtest.NeverAnswered },
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			electing := func(request string, real func() []byte) []byte {
				if requests.Add(1) > 2 {
					return nil // elected
				}
				return instead(real)
			}
			y.Answer(electing)
			bounds, err := events.Bounds(t.Context())
			if err != nil || bounds.Last != 20 || requests.Load() < 3 {
				t.Errorf("%+v %v, after %d requests", bounds, err, requests.Load())
			}
			if name == "a follower that lags" {
				return // not a statement about other requests
			}
			requests.Store(0)
			if raw, err := events.Get(t.Context(), 17); err != nil || raw.Sequence != 17 || requests.Load() < 3 {
				t.Errorf("message %d %v, after %d requests", raw.Sequence, err, requests.Load())
			}
		})
	}
}

// A log may be restored between the two answers of one look-up: the message is not there, and then the stream ends after it.
// That is no hole.
func TestALogRestoredWithinALookUpHasNoHole(t *testing.T) {
	s := streamtest.Start(t)
	y := streamtest.NewRelay(t, s)
	newLog(t, s.JetStream(t), 1)
	write(t, s.JetStream(t), "a", 1, 2)
	y.Answer(func(request string, real func() []byte) []byte {
		if !strings.HasPrefix(request, "STREAM.INFO.") {
			return nil
		}
		write(t, s.JetStream(t), "a", 3, 3)
		y.Answer(nil)
		return nil
	})
	if raw, err := eventlog.Events(y.JetStream, lane).Get(t.Context(), 3); err != nil || raw.Sequence != 3 {
		t.Errorf("message %d %v", raw.Sequence, err)
	}
}

// A consumer that lives and delivers nothing, as one on a replica whose copy has stopped: here it is paused. It is
// replaced, and nothing is missing.
func TestAConsumerThatDeliversNothingIsReplaced(t *testing.T) {
	eventlog.LookEvery(t, 50*time.Millisecond)
	s := streamtest.Start(t)
	js := s.JetStream(t)
	log := newLog(t, js, 1)
	write(t, js, "a", 1, 3)
	r := open(t, js, log, eventlog.Position{})
	read(t, r, 1, 3)
	stream, err := js.Stream(t.Context(), eventlog.Events(js, lane).Name())
	if err != nil {
		t.Fatal(err)
	}
	paused := 0
	consumers := stream.ListConsumers(t.Context())
	for info := range consumers.Info() {
		if _, err := stream.PauseConsumer(t.Context(), info.Name, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		paused++
	}
	if err := consumers.Err(); err != nil || paused != 1 {
		t.Fatalf("%d consumers paused: %v", paused, err)
	}
	write(t, js, "a", 4, 6)
	read(t, r, 4, 6)
}

// After a consumer that lagged, the next one reads the copy of the stream's leader, wherever NATS placed the first.
func TestAConsumerIsPlacedOnTheLeader(t *testing.T) {
	js := streamtest.StartCluster(t).JetStream(t)
	newLog(t, js, 3)
	events := eventlog.Events(js, lane)
	for range 5 {
		bounds, err := events.Bounds(t.Context())
		if err != nil || bounds.Leader == "" {
			t.Fatalf("bounds %+v: %v", bounds, err)
		}
		node, err := events.Place(t.Context(), bounds.Leader)
		if err != nil || node != bounds.Leader {
			t.Fatalf("the consumer is on node %q, the leader is %q: %v", node, bounds.Leader, err)
		}
	}
}

// After a reconnect the acknowledgement of what was published before does not come: the result is unknown at once, not
// after the wait.
func TestAReconnectSettlesWhatWasPublished(t *testing.T) {
	s := streamtest.Start(t)
	newLog(t, s.JetStream(t), 1)
	link := streamtest.NewLink(t, strings.TrimPrefix(s.ClientURL(), "nats://"))
	nc, err := nats.Connect("nats://"+link.Addr(), nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	a, err := eventlog.Events(js, lane).NewAppender(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	link.Cut(false, true) // what is sent arrives, acknowledgements do not
	p := a.PublishAsync(attempt("a", 1, "x"))
	there := eventlog.Events(s.JetStream(t), lane)
	streamtest.Eventually(t, "the message is stored", func() bool {
		bounds, err := there.Bounds(t.Context())
		return err == nil && bounds.Last == 1
	})
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	link.Heal()
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatal("no result a minute after the reconnect")
	}
	if _, err := p.Result(); !errors.Is(err, eventlog.ErrUnknown) {
		t.Errorf("got %v", err)
	}
}

// Many look-ups at once have what one by one they would have: of each message its text, or why there is none, also where NATS does
// not answer at first.
func TestLookUpsOfMany(t *testing.T) {
	s := streamtest.Start(t)
	y := streamtest.NewRelay(t, s)
	log := newLog(t, s.JetStream(t), 1)
	write(t, s.JetStream(t), "a", 1, 40)
	foreign(t, s.JetStream(t)) // 41
	events := eventlog.Events(y.JetStream, lane).In(log)
	var wanted []uint64
	for n := range uint64(42) {
		wanted = append(wanted, 42-n)
	}
	for name, instead := range map[string][]byte{"at once": nil, "10008": streamtest.Unavailable, "no answer": streamtest.NeverAnswered} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			y.Answer(func(request string, _ func() []byte) []byte {
				if n := requests.Add(1); n < 10 || n > 14 || !strings.HasPrefix(request, "STREAM.MSG.GET."+topology.EvtStream(lane)) {
					return nil
				}
				return instead
			})
			got := map[uint64]int{}
			events.LookupAll(within(t), wanted, func(sequence uint64, raw eventlog.Raw, err error) {
				got[sequence]++
				switch {
				case sequence == 41 && errors.Is(err, eventlog.ErrForeign), sequence == 42 && errors.Is(err, eventlog.ErrLostTail):
				case err != nil || raw.Sequence != sequence || string(raw.Data) != fmt.Sprintf("{\"n\":%d}\n", sequence):
					t.Errorf("message %d: %+v, %v", sequence, raw, err)
				}
			})
			for _, sequence := range wanted {
				if got[sequence] != 1 {
					t.Errorf("message %d: %d answers", sequence, got[sequence])
				}
			}
		})
	}
}
