package registry

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestWithoutNATSNothingChanges, and afterwards changes are heard of again: after a clean restart and after a crash.
func TestWithoutNATSNothingChanges(t *testing.T) {
	server := streamtest.Start(t)
	r := open(t, server.JetStream(t))
	write(t, r, "1")
	write(t, r, "2")
	l := follow(t, r)
	l.holds(t, "1", "2") // the first that is in force: who starts on a history does not pass through it
	for _, restart := range []func(){func() { server.Restart(t) }, func() { server.Kill(t) }} {
		restart()
		l.trouble.Wait(t)
		if again := l.current.Wait(t); !slices.Equal(again, []string{"1", "2"}) {
			t.Errorf("%v is in force after the restart", again)
		}
	}
	write(t, r, "3")
	l.holds(t, "1", "2", "3")
}

// TestAConnectionThatDeliversNothing: it is not closed, and neither answers nor changes arrive. A change made in that time is in
// force afterwards.
func TestAConnectionThatDeliversNothing(t *testing.T) {
	server := streamtest.Start(t)
	r := open(t, server.JetStream(t))
	write(t, r, "1")
	link := streamtest.NewLink(t, strings.TrimPrefix(server.ClientURL(), "nats://"))
	nc, err := nats.Connect("nats://"+link.Addr(), nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1))
	streamtest.Must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	streamtest.Must(t, err)
	l := follow(t, open(t, js))
	l.holds(t, "1")
	link.Cut(false, true)
	l.trouble.Wait(t)
	write(t, r, "2")
	link.Heal()
	l.holds(t, "1", "2")
}

// TestABucketThatGoesTakesNothingOutOfForce, nor does a new one that a starting server makes, or a change in that which is ignored;
// the first change in force there starts a new history.
func TestABucketThatGoesTakesNothingOutOfForce(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	r := open(t, js)
	write(t, r, "1")
	write(t, r, "2")
	l := follow(t, r)
	l.holds(t, "1", "2")
	streamtest.Must(t, js.DeleteStream(t.Context(), spec.Bucket.Stream()))
	l.fails(t, errMissing)
	started := follow(t, r)
	started.holds(t)
	l.fails(t, errEmpty)
	if _, _, err := r.History.Create(t.Context(), Key(1), []byte("nonsense")); err != nil {
		t.Fatal(err)
	}
	l.fails(t, errEmpty)
	write(t, r, "3")
	for _, l := range []*live{l, started} {
		l.holds(t, "3")
		if st := l.Status(); !st.Following || st.Error != "" || st.Change != 2 || st.By != "ann" || st.Ignored != 1 {
			t.Errorf("%+v", st)
		}
	}
}

// TestABucketMadeByOthersIsUsed: what nats.go makes lets changes be replaced. A replaced change is the newest, for all servers
// alike.
func TestABucketMadeByOthersIsUsed(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: spec.Bucket.Bucket})
	streamtest.Must(t, err)
	r := open(t, js)
	write(t, r, "1")
	l := follow(t, r)
	l.holds(t, "1")
	if stream, err := js.Stream(t.Context(), spec.Bucket.Stream()); err != nil || stream.CachedInfo().Config.DenyPurge {
		t.Errorf("%+v, %v", stream, err)
	}
	for key, value := range map[string]string{"elsewhere": "no change at all", Key(1): `{"change":{"text":"2"},"by":"ann","at":"2026-11-27T12:00:00Z"}`} {
		if _, err := kv.Put(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	l.holds(t, "1", "2")
	follow(t, r).holds(t, "2")
	write(t, r, "3")
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
	l := follow(t, open(t, f))
	if err := l.trouble.Wait(t); !strings.Contains(err.Error(), "insufficient storage") {
		t.Errorf("%v", err)
	}
	close(f.room)
	l.holds(t)
}
