package settings

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestThoseWhoSetAtOnceLoseNothing: every change has a number of its own, records correctly what it changed from, and all
// servers end with the same in force.
func TestThoseWhoSetAtOnceLoseNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, to connects, replicas int) {
		const setters, each = 5, 6
		s := open(t, to.JetStream(t), replicas)
		a, b := watch(t, s), watch(t, open(t, to.JetStream(t), replicas))
		var g sync.WaitGroup
		for i := range setters {
			mine := open(t, to.JetStream(t), replicas)
			g.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				for j := range each {
					value := fmt.Sprint(1 + i*each + j)
					c, err := mine.Set(ctx, "reminder.batch", value, fmt.Sprintf("setter %d", i))
					if err != nil || c.Value != value || c.N == 0 || c.Revision == 0 {
						t.Errorf("setter %d: %+v, %v", i, c, err)
						return
					}
				}
			})
		}
		g.Wait()
		if t.Failed() {
			return
		}
		all := history(t, s)
		if len(all) != setters*each {
			t.Fatalf("%d changes are in the history, %d were made", len(all), setters*each)
		}
		values, was := map[string]bool{}, ToDefault
		for i, c := range all {
			values[c.Value] = true
			if c.N != uint64(i+1) || c.Was != was || c.Ignored != "" || c.By == "" || c.At.IsZero() {
				t.Errorf("change %d, before it was %s: %+v", i+1, was, c)
			}
			was = c.Value
		}
		if len(values) != setters*each {
			t.Errorf("%d values, want %d", len(values), setters*each)
		}
		last := all[len(all)-1]
		for _, l := range []*Live{a, b} {
			holds(t, l, "the last value", func(s *Settings) bool { return fmt.Sprint(s.ReminderBatch) == last.Value })
			metrics(t, l, last.Revision, 0)
		}
	})
}

// TestTheBucketOnlyGrows: a writer can add, and not remove.
func TestTheBucketOnlyGrows(t *testing.T) {
	onBoth(t, func(t *testing.T, to connects, replicas int) {
		js := to.JetStream(t)
		s := open(t, js, replicas)
		if all := history(t, s); len(all) != 0 {
			t.Errorf("without a bucket: %+v", all)
		}
		if _, err := js.KeyValue(t.Context(), topology.SettingsBucket); !errors.Is(err, jetstream.ErrBucketNotFound) {
			t.Errorf("reading made the bucket, or %v", err)
		}
		first := set(t, s, "reminder.batch", "200")
		if first.N != 1 || first.Was != ToDefault || first.Value != "200" || first.By != "ann@ops" {
			t.Errorf("%+v", first)
		}
		if again := set(t, s, "reminder.batch", "0300"); again.N != 2 || again.Was != "200" || again.Value != "300" {
			t.Errorf("%+v", again)
		}
		stream, err := js.Stream(t.Context(), topology.SettingsStream)
		if err != nil {
			t.Fatal(err)
		}
		if config := stream.CachedInfo().Config; config.Replicas != replicas || config.Storage != jetstream.FileStorage || !growsOnly(config) {
			t.Errorf("%+v", config)
		}
		kv, err := js.KeyValue(t.Context(), topology.SettingsBucket)
		if err != nil {
			t.Fatal(err)
		}
		rollup := nats.NewMsg(subjectPrefix + changeKey(1))
		rollup.Header.Set("Nats-Rollup", "all")
		for what, err := range map[string]error{
			"putting":  second(kv.Put(t.Context(), changeKey(1), nil)),
			"updating": second(kv.Update(t.Context(), changeKey(1), nil, 1)),
			"creating": second(kv.Create(t.Context(), changeKey(1), nil)),
			"deleting": kv.Delete(t.Context(), changeKey(1)),
			"purging":  kv.Purge(t.Context(), changeKey(1)),
			"rollup":   second(js.PublishMsg(t.Context(), rollup)),
			"emptying": stream.Purge(t.Context()),
			"removing": stream.DeleteMsg(t.Context(), 1),
		} {
			if err == nil {
				t.Errorf("%s change 1 succeeded", what)
			}
		}
		if all := history(t, s); len(all) != 2 || all[0] != first {
			t.Errorf("%+v", all)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestTheBucketHasAsManyCopiesAsTheLog(t *testing.T) {
	c := streamtest.StartCluster(t)
	js := c.JetStream(t)
	if _, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, Replicas: 3, KeyFingerprint: "k", CmdMaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	set(t, open(t, js, 0), "reminder.rate", "1000")
	stream, err := js.Stream(t.Context(), topology.SettingsStream)
	if err != nil || stream.CachedInfo().Config.Replicas != 3 {
		t.Errorf("%+v, %v", stream, err)
	}
}

func TestNothingIsStoredOfWhatMakesNoSense(t *testing.T) {
	s := open(t, streamtest.Start(t).JetStream(t), 1)
	for _, c := range []struct{ setting, value, by, want string }{
		{"reminder.batch", "501", "ann", "from 1 to 500"},
		{"reminder.colour", "red", "ann", "there is no setting"},
		{"reminder.batch", "1", "", "by is"},
		{"reminder.batch", "1", "ann\n", "by is"},
	} {
		_, err := s.Set(t.Context(), c.setting, c.value, c.by)
		var invalid *InvalidError
		if contains(t, err, c.want); !errors.As(err, &invalid) {
			t.Errorf("%T", err)
		}
	}
	if all := history(t, s); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

// breaks is a JetStream whose bucket fails once, before a creation took effect or after.
type breaks struct {
	jetstream.JetStream
	after bool
	once  sync.Once
	err   error
}

type breaksKV struct {
	jetstream.KeyValue
	b *breaks
}

func (b *breaks) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	kv, err := b.JetStream.KeyValue(ctx, bucket)
	return breaksKV{kv, b}, err
}

func (k breaksKV) Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (revision uint64, err error) {
	k.b.once.Do(func() {
		if k.b.after {
			_, err = k.KeyValue.Create(ctx, key, value, opts...)
		}
		err = errors.Join(err, k.b.err)
	})
	if err != nil {
		return 0, err
	}
	return k.KeyValue.Create(ctx, key, value, opts...)
}

// TestAWriteWithoutAResultIsStoredOnce: whether it had been stored or not, there is one change, and Set returns it. A full
// disk is an answer, and may come after the write.
func TestAWriteWithoutAResultIsStoredOnce(t *testing.T) {
	server := streamtest.Start(t)
	full := &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "no space left on device"}
	for _, failure := range []error{nats.ErrTimeout, full} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, after=%v", failure, after), func(t *testing.T) {
				js := server.JetStream(t)
				before := len(history(t, open(t, js, 1)))
				c := set(t, open(t, &breaks{JetStream: js, after: after, err: failure}, 1), "reminder.batch", "77")
				all := history(t, open(t, js, 1))
				if len(all) != before+1 || all[before] != c {
					t.Errorf("%+v, Set returned %+v", all[before:], c)
				}
			})
		}
	}
}

// TestAwayIsSaid: no error claims that nothing was stored when that is not known.
func TestAwayIsSaid(t *testing.T) {
	server := streamtest.Start(t)
	js := server.JetStream(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("stopped")
	b := &breaks{JetStream: js, after: true, err: nats.ErrTimeout}
	s := open(t, cancels{b, func() { cancel(cause) }}, 1)
	_, err := s.Set(ctx, "reminder.batch", "77", "ann")
	if !errors.Is(err, ErrUnknown) || !errors.Is(err, cause) {
		t.Errorf("a write without an answer: %v", err)
	}
	contains(t, err, "scrip config history")

	server.Shutdown()
	short, done := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer done()
	_, err = open(t, js, 1).Set(short, "reminder.batch", "77", "ann")
	if contains(t, err, "nothing was stored"); errors.Is(err, ErrUnknown) {
		t.Error("the server was away before anything was sent")
	}
	if _, err := open(t, js, 1).History(short); err == nil {
		t.Error("a history without a server")
	}
}

// cancels ends the caller's patience once a bucket has been found.
type cancels struct {
	*breaks
	cancel func()
}

func (c cancels) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	kv, err := c.breaks.KeyValue(ctx, bucket)
	return cancelsKV{kv, c.cancel}, err
}

type cancelsKV struct {
	jetstream.KeyValue
	cancel func()
}

func (k cancelsKV) Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error) {
	revision, err := k.KeyValue.Create(ctx, key, value, opts...)
	k.cancel()
	return revision, err
}
