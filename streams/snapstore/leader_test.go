package snapstore_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
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

// electing is a rig whose store sends its requests through a relay. The first request of each kind is answered by instead,
// as by a stream whose leader has just died.
func electing(t *testing.T, instead func() []byte) (r *rig, struck func() []string) {
	t.Helper()
	s := streamtest.Start(t)
	r = newRigOn(t, s)
	r.save(10)
	y := streamtest.NewRelay(t, s)
	r.js = y.JetStream
	r.store = r.open(0)
	r.store.ReadFirst(300 * time.Millisecond)
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
		if answer := instead(); len(answer) > 0 && strings.HasPrefix(kind, "DIRECT.") {
			return nil // these are never answered so
		}
		seen[kind] = true
		kinds = append(kinds, kind)
		return instead()
	})
	return r, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return kinds
	}
}

// A snapshot that fits is used although every kind of request meets a leader election once: it costs seconds, neither a
// minute nor the whole log.
func TestAnElectionCostsNoSnapshot(t *testing.T) {
	for name, instead := range map[string]func() []byte{
		"10008":     func() []byte { return streamtest.Unavailable },
		"no answer": func() []byte { return streamtest.NeverAnswered },
	} {
		t.Run(name, func(t *testing.T) {
			r, struck := electing(t, instead)
			r.loads(10)
			if strings.Contains(r.logged.String(), "not used") || len(struck()) < 3 {
				t.Errorf("struck %q\n%s", struck(), r.logged)
			}
		})
	}
}

// What accept and read report as transient is returned; it is no reason to go on with an older snapshot or the whole log.
func TestTransientErrorsAreReturned(t *testing.T) {
	r := newRig(t)
	r.save(10)
	away := errors.Join(errors.New("verifying"), nats.ErrNoResponders)
	drain := func(from io.Reader) error { _, err := io.Copy(io.Discard, from); return err }
	if _, ok, err := r.store.Load(t.Context(), name, func(snapstore.Meta) error { return away }, drain); ok || !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("accept: %v %v", ok, err)
	}
	if _, ok, err := r.store.Load(t.Context(), name, func(snapstore.Meta) error { return nil }, func(io.Reader) error { return natsx.ErrNoLeader }); ok || !errors.Is(err, natsx.ErrNoLeader) {
		t.Errorf("read: %v %v", ok, err)
	}
	if strings.Contains(r.logged.String(), "not used") {
		t.Errorf("%s", r.logged)
	}
}

// A replica that lags counts fewer chunks. Where no leader answers, that is no damage.
func TestAFollowersCountIsNotBelieved(t *testing.T) {
	s := streamtest.Start(t)
	r := newRigOn(t, s)
	r.save(10)
	y := streamtest.NewRelay(t, s)
	var once sync.Once
	y.Answer(func(request string, real func() []byte) (instead []byte) {
		if request == "STREAM.INFO."+topology.SnapStream {
			once.Do(func() {
				instead = bytes.Replace(streamtest.Behind(t, real(), 1, ""), []byte(`"subjects":{`), []byte(`"was":{`), 1)
			})
		}
		return instead
	})
	store, err := snapstore.New(t.Context(), y.JetStream, snapstore.Options{Seal: key, Logger: slog.New(slog.NewTextHandler(r.logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	r.store = store
	r.loads(10)
	if strings.Contains(r.logged.String(), "not used") {
		t.Errorf("%s", r.logged)
	}
}

// TestAnObjectThatIsMissingAtFirst: a leader of a replicated store answers from a copy that lags; the snapshot is used once
// the object is there. A store with one copy is believed at once.
func TestAnObjectThatIsMissingAtFirst(t *testing.T) {
	notFound := []byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`)
	for _, replicas := range []string{"3", "1"} {
		t.Run("replicas "+replicas, func(t *testing.T) {
			s := streamtest.Start(t)
			r := newRigOn(t, s)
			r.save(10)
			y := streamtest.NewRelay(t, s)
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
			store, err := snapstore.New(t.Context(), y.JetStream, snapstore.Options{Seal: key, Logger: slog.New(slog.NewTextHandler(r.logged, nil))})
			if err != nil {
				t.Fatal(err)
			}
			r.store = store
			if replicas == "3" {
				r.loads(10)
			}
			if replicas == "1" {
				drain := func(from io.Reader) error { _, err := io.Copy(io.Discard, from); return err }
				if _, ok, err := store.Load(t.Context(), name, func(snapstore.Meta) error { return nil }, drain); ok || err != nil {
					t.Errorf("loaded: %v, %v", ok, err)
				}
			}
			if unused := strings.Contains(r.logged.String(), "not used"); unused != (replicas == "1") {
				t.Errorf("logged:\n%s", r.logged)
			}
		})
	}
}
