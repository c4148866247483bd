package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestThoseWhoWriteAtOnceLoseNothing: every change has a number of its own, and all servers fold the same, on one node or
// three: creations that meet are answered differently there. The bucket has as many copies as the log. On the cluster the
// node that changes come from is lost, and comes back.
func TestThoseWhoWriteAtOnceLoseNothing(t *testing.T) {
	t.Run("R1", func(t *testing.T) { atOnce(t, streamtest.Start(t), 1) })
	t.Run("R3", func(t *testing.T) {
		c := streamtest.StartCluster(t)
		r, server := atOnce(t, c, 3)
		all := read(t, r)
		node := c.StreamLeader(t, spec.Bucket.Stream())
		for i, change := range []func(){func() { c.Stop(t, node) }, func() { c.Start(t, node) }} {
			change()
			all = append(all, fmt.Sprint("after ", i))
			write(t, r, all[len(all)-1])
			server.holds(t, all...)
		}
	})
}

func atOnce(t *testing.T, to connects, replicas int) (*Registry[*lines, line], *live) {
	js := to.JetStream(t)
	if _, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, Replicas: replicas, KeyFingerprint: "k", CmdMaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	const writers, each = 5, 6
	r := open(t, js)
	servers := []*live{follow(t, open(t, to.JetStream(t))), follow(t, open(t, to.JetStream(t)))}
	servers[0].holds(t) // none of it; the bucket was missing, and one of them made it
	var g sync.WaitGroup
	for i := range writers {
		mine := open(t, to.JetStream(t))
		g.Go(func() {
			for j := range each {
				write(t, mine, fmt.Sprint(i, "-", j))
			}
		})
	}
	g.Wait()
	all := read(t, r)
	if distinct := slices.Compact(slices.Sorted(slices.Values(all))); len(all) != writers*each || len(distinct) != len(all) {
		t.Fatalf("%d changes are in the history, %d were made: %v", len(all), writers*each, all)
	}
	for _, s := range servers {
		s.holds(t, all...)
	}
	stream, err := js.Stream(t.Context(), spec.Bucket.Stream())
	streamtest.Must(t, err)
	if c := stream.CachedInfo().Config; c.Replicas != replicas || !c.DenyPurge {
		t.Errorf("%+v", c)
	}
	onlyGrows(t, js, stream)
	if now := read(t, r); !slices.Equal(now, all) {
		t.Errorf("%v became %v", all, now)
	}
	return r, servers[0]
}

// onlyGrows: a writer can add, and neither replace nor remove.
func onlyGrows(t *testing.T, js jetstream.JetStream, stream jetstream.Stream) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), spec.Bucket.Bucket)
	streamtest.Must(t, err)
	rollup := nats.NewMsg(spec.Bucket.Subject(Key(1)))
	rollup.Header.Set("Nats-Rollup", "all")
	for what, err := range map[string]error{
		"putting":  second(kv.Put(t.Context(), Key(1), nil)),
		"updating": second(kv.Update(t.Context(), Key(1), nil, 1)),
		"creating": second(kv.Create(t.Context(), Key(1), nil)),
		"deleting": kv.Delete(t.Context(), Key(1)),
		"purging":  kv.Purge(t.Context(), Key(1)),
		"rollup":   second(js.PublishMsg(t.Context(), rollup)),
		"emptying": stream.Purge(t.Context()),
		"removing": stream.DeleteMsg(t.Context(), 1),
	} {
		if err == nil {
			t.Errorf("%s change 1 succeeded", what)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestAWriteWithoutAResultIsOneChange: whenever it took effect.
func TestAWriteWithoutAResultIsOneChange(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	if all := read(t, open(t, js)); len(all) != 0 {
		t.Errorf("without a bucket: %v", all)
	}
	if _, err := js.KeyValue(t.Context(), spec.Bucket.Bucket); !errors.Is(err, jetstream.ErrBucketNotFound) {
		t.Errorf("reading made the bucket, or %v", err)
	}
	var want []string
	for when, lose := range map[string]func() jetstream.JetStream{
		"never":   func() jetstream.JetStream { return streamtest.LostAnswer(js, false) },
		"at once": func() jetstream.JetStream { return streamtest.LostAnswer(js, true) },
		"late":    func() jetstream.JetStream { return streamtest.LateWrite(js) },
	} {
		want = append(want, when)
		write(t, open(t, lose()), when)
		if all := read(t, open(t, js)); !slices.Equal(all, want) {
			t.Errorf("%v, want %v", all, want)
		}
	}
}

// giveUp ends the writer's patience when the first change has been sent, whose answer is lost.
type giveUp struct {
	jetstream.JetStream
	cancel func()
}

func (g giveUp) KeyValue(ctx context.Context, name string) (jetstream.KeyValue, error) {
	kv, err := g.JetStream.KeyValue(ctx, name)
	return giveUpKV{kv, g.cancel}, err
}

type giveUpKV struct {
	jetstream.KeyValue
	cancel func()
}

func (k giveUpKV) Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error) {
	defer k.cancel()
	return k.KeyValue.Create(ctx, key, value, opts...)
}

func add(text string) func(*lines, time.Time) (line, error) {
	return func(*lines, time.Time) (line, error) { return line{text}, nil }
}

// TestNoErrorSaysMoreThanIsKnown: whether something was stored.
func TestNoErrorSaysMoreThanIsKnown(t *testing.T) {
	server := streamtest.Start(t)
	js := server.JetStream(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("stopped")
	_, _, err := open(t, giveUp{streamtest.LostAnswer(js, true), func() { cancel(cause) }}).Write(ctx, ann, add("x"))
	if !errors.Is(err, ErrUnknown) || !errors.Is(err, cause) || !strings.Contains(err.Error(), "see the test") {
		t.Errorf("a write without an answer: %v", err)
	}
	server.Shutdown()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	_, _, err = open(t, js).Write(stopped, ann, add("x"))
	if err == nil || errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "nothing was stored") {
		t.Errorf("the server was away before anything was sent: %v", err)
	}
	if _, err := open(t, js).Read(stopped); err == nil {
		t.Error("a history without a server")
	}
}

// TestWhatIsNotValidIsNotStored: nor what its maker refuses, nor a change that is none.
func TestWhatIsNotValidIsNotStored(t *testing.T) {
	r := open(t, streamtest.Start(t).JetStream(t))
	var invalid *InvalidError
	for _, c := range []struct{ by, text, want string }{
		{"", "x", "by is"}, {"ann\n", "x", "by is"}, {strings.Repeat("x", 65), "x", "by is"}, {"ann", "", "text is empty"}, {"ann", strings.Repeat("x", 16<<10), "bytes, at most"},
	} {
		if _, _, err := r.Write(within(t), audit.Entry{Actor: c.by}, add(c.text)); !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20q by %q: %v", c.text, c.by, err)
		}
	}
	for _, refuse := range []error{ErrUnchanged, errors.New("refused")} {
		_, _, err := r.Write(within(t), ann, func(*lines, time.Time) (line, error) { return line{"x"}, refuse })
		if refuse == ErrUnchanged && err != nil || refuse != ErrUnchanged && err != refuse {
			t.Errorf("%v: %v", refuse, err)
		}
	}
	if all := read(t, r); len(all) != 0 {
		t.Errorf("stored: %v", all)
	}
}

// TestChangesAreRecorded in the audit stream, with their author, also one that has changed nothing; one that cannot be recorded is
// in force.
func TestChangesAreRecorded(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	if _, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, KeyFingerprint: "k", CmdMaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	log := audit.Open(js, nil)
	r := New(js, spec, Options{Logger: streamtest.Logger(t), Audit: log})
	for _, text := range []string{"1", "silent"} {
		write(t, r, text)
	}
	by := audit.Entry{Actor: "bob", Key: "01h8z3qk", Via: "http", From: "192.0.2.7"}
	if _, _, err := r.Write(within(t), by, func(*lines, time.Time) (line, error) { return line{"again"}, ErrUnchanged }); err != nil {
		t.Error(err)
	}
	all, _, err := log.Read(t.Context(), audit.Filter{Kind: audit.Settings}, 10)
	if err != nil || len(all) != 2 || all[1].About != "1" || all[1].Actor != "ann" {
		t.Fatalf("%+v, %v", all, err)
	}
	by.Kind, by.Action, by.About, by.At, by.Sequence = audit.Settings, "add", "again", all[0].At, all[0].Sequence
	if all[0] != by {
		t.Errorf("%+v, want %+v", all[0], by)
	}
	streamtest.Must(t, js.DeleteStream(t.Context(), topology.AuditStream))
	c, _, err := r.Write(within(t), ann, add("2"))
	if !errors.Is(err, ErrUnrecorded) || c.N != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	if all := read(t, r); !slices.Equal(all, []string{"1", "silent", "2"}) {
		t.Errorf("%v", all)
	}
}
