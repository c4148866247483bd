package eventlog_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
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
