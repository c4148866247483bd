package snapstore_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// relayed is a rig with a snapshot, whose store sends its requests through a relay from then on.
func relayed(t *testing.T) (*rig, *streamtest.Relay) {
	t.Helper()
	s := streamtest.Start(t)
	r := newRigOn(t, s)
	r.save(10)
	y := streamtest.NewRelay(t, s)
	r.js = y.JetStream
	r.store = r.open(0)
	return r, y
}

// used checks that the snapshot was used, or was not, by what is logged.
func (r *rig) used(want bool) {
	r.t.Helper()
	if used := !strings.Contains(r.logged.String(), "not used"); used != want {
		r.t.Errorf("used: %t\n%s", used, r.logged)
	}
}

// electing makes a relay answer the first request of each kind with instead, as a stream whose leader has just died.
func electing(y *streamtest.Relay, instead []byte) (struck func() []string) {
	var mu sync.Mutex
	var kinds []string
	seen := map[string]bool{}
	y.Answer(func(request string, _ func() []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		// CONSUMER.CREATE.OBJ_SCRIP_SNAP.<name>…: each consumer has a name of its own.
		kind := strings.Join(strings.Split(request, ".")[:3], ".")
		if seen[kind] || strings.HasPrefix(kind, "CONSUMER.DELETE.") {
			return nil
		}
		if len(instead) > 0 && strings.HasPrefix(kind, "DIRECT.") {
			return nil // these are never answered so
		}
		seen[kind] = true
		kinds = append(kinds, kind)
		return instead
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return kinds
	}
}

// A snapshot that fits is used although every kind of request meets a leader election once: it costs seconds, neither a
// minute nor the whole log.
func TestAnElectionCostsNoSnapshot(t *testing.T) {
	for name, instead := range map[string][]byte{"10008": streamtest.Unavailable, "no answer": streamtest.NeverAnswered} {
		t.Run(name, func(t *testing.T) {
			r, y := relayed(t)
			r.store.ReadFirst(300 * time.Millisecond)
			struck := electing(y, instead)
			r.loads(10)
			if r.used(true); len(struck()) < 3 {
				t.Errorf("struck %q", struck())
			}
		})
	}
}

// What accept and read report as transient is returned; it is no reason to go on with an older snapshot or the whole log.
func TestTransientErrorsAreReturned(t *testing.T) {
	r := newRig(t)
	r.save(10)
	away := errors.Join(errors.New("verifying"), nats.ErrNoResponders)
	if _, ok, err := r.store.Load(t.Context(), name, func(snapstore.Meta) error { return away }, drain); ok || !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("accept: %v %v", ok, err)
	}
	if _, ok, err := r.store.Load(t.Context(), name, anyOf, func(io.Reader) error { return natsx.ErrNoLeader }); ok || !errors.Is(err, natsx.ErrNoLeader) {
		t.Errorf("read: %v %v", ok, err)
	}
	r.used(true)
}

// A replica that lags counts fewer chunks. Where no leader answers, that is no damage.
func TestAFollowersCountIsNotBelieved(t *testing.T) {
	r, y := relayed(t)
	var once sync.Once
	y.Answer(func(request string, real func() []byte) (instead []byte) {
		if request == "STREAM.INFO."+topology.SnapStream {
			once.Do(func() {
				instead = bytes.Replace(streamtest.Behind(t, real(), 1, ""), []byte(`"subjects":{`), []byte(`"was":{`), 1)
			})
		}
		return instead
	})
	r.store = r.open(0)
	r.loads(10)
	r.used(true)
}

// TestAnObjectThatIsMissingAtFirst: a leader of a replicated store answers from a copy that lags; the snapshot is used once
// the object is there. A store with one copy is believed at once.
func TestAnObjectThatIsMissingAtFirst(t *testing.T) {
	notFound := []byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`)
	for _, replicas := range []string{"3", "1"} {
		t.Run("replicas "+replicas, func(t *testing.T) {
			r, y := relayed(t)
			var missed atomic.Int32
			y.Answer(func(request string, real func() []byte) []byte {
				switch {
				case request == "STREAM.MSG.GET."+topology.SnapStream && missed.Add(1) <= 2:
					return notFound
				case request == "STREAM.INFO."+topology.SnapStream:
					return bytes.Replace(real(), []byte(`"num_replicas":1`), []byte(`"num_replicas":`+replicas), 1)
				}
				return nil
			})
			r.store = r.open(0)
			if replicas == "3" {
				r.loads(10)
			} else {
				r.loads(0)
			}
			r.used(replicas == "3")
		})
	}
}
