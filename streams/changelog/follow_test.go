package changelog

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestWithoutNATSNothingChanges, and afterwards changes are heard of again: after a clean restart and after a crash.
func TestWithoutNATSNothingChanges(t *testing.T) {
	server := streamtest.Start(t)
	b := bucket(t, server.JetStream(t))
	write(t, b, "1")
	write(t, b, "2")
	l := follow(t, b)
	l.holds(t, "1", "2") // the first that is in force: who starts on a history does not pass through it
	for _, restart := range []func(){func() { server.Restart(t) }, func() { server.Kill(t) }} {
		restart()
		l.trouble.Wait(t)
		if again := l.current.Wait(t); !slices.Equal(again, []string{"1", "2"}) {
			t.Errorf("%v is in force after the restart", again)
		}
	}
	write(t, b, "3")
	l.holds(t, "1", "2", "3")
}

// TestAConnectionThatDeliversNothing: it is not closed, and neither answers nor changes arrive. A change made meanwhile is in
// force afterwards.
func TestAConnectionThatDeliversNothing(t *testing.T) {
	server := streamtest.Start(t)
	b := bucket(t, server.JetStream(t))
	write(t, b, "1")
	link := streamtest.NewLink(t, strings.TrimPrefix(server.ClientURL(), "nats://"))
	nc, err := nats.Connect("nats://"+link.Addr(), nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	l := follow(t, bucket(t, js))
	l.holds(t, "1")
	link.Cut(false, true)
	l.trouble.Wait(t)
	write(t, b, "2")
	link.Heal()
	l.holds(t, "1", "2")
}

// TestABucketThatGoesTakesNothingOutOfForce, nor does a new one that a starting server makes; the first change in that begins a
// new history.
func TestABucketThatGoesTakesNothingOutOfForce(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	b := bucket(t, js)
	write(t, b, "1")
	write(t, b, "2")
	l := follow(t, b)
	l.holds(t, "1", "2")
	if err := js.DeleteStream(t.Context(), spec.Stream()); err != nil {
		t.Fatal(err)
	}
	l.fails(t, ErrMissing)
	started := follow(t, b)
	started.holds(t)
	l.fails(t, errEmpty)
	write(t, b, "3")
	for _, l := range []*lines{l, started} {
		if now := l.current.Wait(t); len(now) != 1 || now[0] != "3" {
			t.Errorf("%v is in force", now)
		}
	}
}

// TestABucketMadeByOthersIsUsed: what nats.go makes lets changes be replaced. A replaced change is the newest, for all servers
// alike.
func TestABucketMadeByOthersIsUsed(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: spec.Bucket})
	if err != nil {
		t.Fatal(err)
	}
	b := bucket(t, js)
	write(t, b, "1")
	l := follow(t, b)
	l.holds(t, "1")
	if stream, err := js.Stream(t.Context(), spec.Stream()); err != nil || topology.GrowsOnly(stream.CachedInfo().Config) {
		t.Errorf("%+v, %v", stream, err)
	}
	for key, value := range map[string]string{"elsewhere": "no change at all", Key(1): "2"} {
		if _, err := kv.Put(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	l.holds(t, "1", "2")
	follow(t, b).holds(t, "2")
	write(t, b, "3")
	l.holds(t, "1", "2", "3")
}

// full is a JetStream that makes no streams until there is room.
type full struct {
	jetstream.JetStream
	room chan struct{} // closed when there is
}

func (f full) CreateStream(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	select {
	case <-f.room:
		return f.JetStream.CreateStream(ctx, config)
	default:
		return nil, &jetstream.APIError{Code: 500, ErrorCode: 10047, Description: "insufficient storage resources available"}
	}
}

// TestNothingCountsAsReadWithoutABucket: a start continues to wait for it, and has the reason.
func TestNothingCountsAsReadWithoutABucket(t *testing.T) {
	f := full{streamtest.Start(t).JetStream(t), make(chan struct{})}
	l := follow(t, bucket(t, f))
	if err := l.trouble.Wait(t); !strings.Contains(err.Error(), "insufficient storage") {
		t.Errorf("%v", err)
	}
	close(f.room)
	l.holds(t)
}
