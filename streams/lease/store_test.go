package lease

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/golden"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// checkStore checks what Manager and Lock rely on. It takes a second, until a key expires.
func checkStore(t *testing.T, s store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const a, b, c = serverPrefix + "lane.a", leasePrefix + "lane.0", lockPrefix + "c"
	first, err := s.watch(ctx, "lane")
	if err != nil {
		t.Fatal(err)
	}
	defer first.stop()
	if u := <-first.updates; u.key != "" || !u.complete {
		t.Errorf("an empty bucket is reported as %+v", u)
	}
	var revision uint64
	put := func(key, value string, ttl time.Duration, expected uint64) {
		t.Helper()
		r, err := s.put(ctx, key, []byte(value), ttl, expected)
		if err != nil || r <= revision {
			t.Fatalf("writing %s expected %d: revision %d after %d, %v", key, expected, r, revision, err)
		}
		revision = r
	}
	refused := func(err error) {
		t.Helper()
		var conflict *conflictError
		if !errors.As(err, &conflict) || conflict.actual != revision {
			t.Errorf("a write expected another revision than %d: %v", revision, err)
		}
	}
	must := func(key string, gone, found bool) {
		t.Helper()
		u, ok, err := s.last(ctx, key)
		if err != nil || ok != found || ok && (u.revision != revision || u.gone != gone || u.key != key || time.Since(u.stored).Abs() > time.Minute) {
			t.Errorf("%s is %+v, %t, %v; expected revision %d, gone %t", key, u, ok, err, revision, gone)
		}
	}
	must(a, false, false)
	put(a, "1", time.Minute, 0)
	_, err = s.put(ctx, a, nil, time.Minute, 0)
	refused(err)
	stale := revision
	put(a, "2", time.Minute, revision)
	_, err = s.put(ctx, a, nil, time.Minute, stale)
	refused(err)
	put(a, "3", time.Minute, whatever)
	refused(s.remove(ctx, a, stale))
	must(a, false, true)
	if err := s.remove(ctx, a, revision); err != nil {
		t.Fatal(err)
	}
	revision++
	must(a, true, true)
	put(a, "4", time.Minute, revision)
	put(c, "of no group", time.Minute, 0)
	put(leasePrefix+"other.0", "of another group", time.Minute, 0)
	put(b, "5", time.Second, 0)
	must(b, false, true)

	// The watcher shows each key's end, that of a TTL too; what was replaced by then it may leave out.
	last := map[string]update{}
	for u := range first.updates {
		if last[u.key] = u; u.key == b && u.gone {
			break
		}
	}
	if u := last[a]; len(last) != 2 || string(u.value) != "4" || u.gone || u.expired || u.revision != revision-3 {
		t.Errorf("the watcher shows %+v", last)
	}
	if u := last[b]; !u.expired || u.revision <= revision {
		t.Errorf("a key that expired is shown as %+v", u)
	}
	second, err := s.watch(ctx, "lane")
	if err != nil {
		t.Fatal(err)
	}
	defer second.stop()
	var keys []string
	for u := range second.updates {
		if keys = append(keys, u.key); u.complete {
			break
		}
	}
	if !slices.Equal(keys, []string{a, b}) {
		t.Errorf("a later watcher shows %s", keys)
	}
}

func TestTheStoreInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { checkStore(t, newMemory().site()) })
}

// TestInNATS: the store, managers and locks on one server and on three, which answer compare-and-set differently; also while
// the server restarts, or the node ends that leads the bucket. No lease moves then.
func TestInNATS(t *testing.T) {
	run := func(t *testing.T, js func() jetstream.JetStream, replicas int, disturb func()) {
		bucket := natsStore{js: js()}
		ctx := t.Context()
		if _, held, err := Locked(ctx, bucket.js, "a"); err != nil || held {
			t.Errorf("held without a bucket: %v", err)
		}
		if _, err := TakeLock(ctx, bucket.js, "a", "early", 0); err == nil {
			t.Error("taken without a bucket")
		}
		if _, err := bucket.js.CreateStream(ctx, topology.LeaseConfig(replicas)); err != nil {
			t.Fatal(err)
		}
		checkStore(t, bucket)

		o := newOffice(t, keys)
		lock, err := TakeLock(ctx, bucket.js, "a", "test", 0)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(ctx)
		renewed := make(chan error, 1)
		go func() { renewed <- lock.Run(ctx) }()
		a := o.startOn(natsStore{js: js()}, "a", Options{}, o.work("a"))
		o.await("a")
		b := o.startOn(natsStore{js: js()}, "b", Options{}, o.work("b"))
		o.await("a", "b")
		o.change(func() { o.causes = map[string][]error{} }) // what a gave to b
		disturb()
		disturbed := time.Now()
		for _, s := range []*server{a, b} {
			s.signals.announced.WaitFor(t, disturbed.Before)
		}
		o.spread("a", "b")
		o.undisturbed()
		a.stop()
		o.await("b")
		if o.twice {
			t.Error("two servers worked on the same key although none had failed")
		}
		streamtest.Eventually(t, "b has all leases, also in the replica that is read", func() bool {
			s, err := Inspect(ctx, bucket.js, "lane", keys)
			return err == nil && slices.Equal(s.Servers, []string{"b"}) && s.Holders[keys-1].Server == "b"
		})
		if note, held, err := Locked(ctx, bucket.js, "a"); err != nil || !held || note.By != "test" {
			t.Errorf("the lock is held by %+v, %t, %v", note, held, err)
		}
		cancel()
		if err := errors.Join(<-renewed, lock.Release(t.Context())); err != nil {
			t.Error(err)
		}
		if _, held, err := Locked(t.Context(), bucket.js, "a"); err != nil || held {
			t.Errorf("held after its release: %v", err)
		}
	}
	for name, restart := range map[string]func(*streamtest.Server, testing.TB){
		"Restart": (*streamtest.Server).Restart, "Kill": (*streamtest.Server).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := streamtest.Start(t)
			run(t, func() jetstream.JetStream { return s.JetStream(t) }, 1, func() { restart(s, t) })
		})
	}
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		c := streamtest.StartCluster(t)
		run(t, func() jetstream.JetStream { return c.JetStream(t, natsx.Options("test")...) }, 3,
			func() { c.Stop(t, c.StreamLeader(t, topology.LeaseStream)) })
	})
}

// TestGoldenRecords: the values of keys, which servers and tools of one log read from each other.
func TestGoldenRecords(t *testing.T) {
	since := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	for file, want := range map[string]any{
		"lease.json": &record{Server: "a", Nonce: "71c1e9a6-0b0f-4a43-8a3a-6d5c2f1f9b11", Since: since, Started: since.Add(-time.Hour)},
		"lock.json":  &Note{By: "a backup on host-1", Since: since, Nonce: "0f4b1f0e-6a1a-4bb4-9a51-9d8f0c6a7f20"},
	} {
		encoded, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
		if err := json.Unmarshal(golden.Bytes(t, file, encoded), got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is decoded as %+v, %v; expected %+v", file, got, err, want)
		}
	}
}
