package once

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/streams/access/natsauth/authtest"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/share"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

func open(t *testing.T) (*Store, jetstream.JetStream) {
	js := streamtest.Start(t, authtest.Servers(1)).JetStream(t)
	log, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, KeyFingerprint: "k"})
	streamtest.Must(t, err)
	return Open(js, [32]byte{7}, log.UUID), js
}

// TestOneOfMany creates a name, and one takes its value, whose text the bucket does not show.
func TestOneOfMany(t *testing.T) {
	s, js := open(t)
	var created, taken atomic.Int32
	many := func(f func() error) {
		var g errgroup.Group
		for range 16 {
			g.Go(f)
		}
		streamtest.Must(t, g.Wait())
	}
	for range 2 { // a name whose value was taken is as one that had none
		many(func() error {
			existing, err := s.Create(t.Context(), Owner{"a", Minute}, "token secret-name", []byte("secret value"))
			if existing == nil {
				created.Add(1)
			} else if string(existing) != "secret value" {
				t.Errorf("another one has %q", existing)
			}
			return err
		})
		kv, err := js.KeyValue(t.Context(), topology.OnceBucket)
		streamtest.Must(t, err)
		keys, err := kv.Keys(t.Context())
		streamtest.Must(t, err)
		entry, err := kv.Get(t.Context(), keys[0])
		streamtest.Must(t, err)
		if shown := append([]byte(keys[0]), entry.Value()...); len(keys) != 1 || bytes.Contains(shown, []byte("secret")) {
			t.Errorf("the bucket shows %q in %d keys", shown, len(keys))
		}
		many(func() error {
			value, ok, err := s.Take(t.Context(), "token secret-name")
			if ok && string(value) == "secret value" {
				taken.Add(1)
			}
			return err
		})
	}
	if created.Load() != 2 || taken.Load() != 2 {
		t.Errorf("%d created it and %d took it, want one each time", created.Load(), taken.Load())
	}
}

func TestPutReplaces(t *testing.T) {
	s, _ := open(t)
	if existing, err := s.Create(t.Context(), Owner{"a", Day}, "a", []byte{}); existing != nil || err != nil {
		t.Fatal(existing, err)
	}
	if existing, err := s.Create(t.Context(), Owner{"a", Day}, "a", []byte("x")); existing == nil || len(existing) != 0 || err != nil {
		t.Errorf("an empty value is shown as %v, %v", existing, err)
	}
	streamtest.Must(t, s.Put(t.Context(), "a", []byte("b")))
	if existing, err := s.Create(t.Context(), Owner{"a", Day}, "a", []byte("c")); string(existing) != "b" || err != nil {
		t.Errorf("%q, %v", existing, err)
	}
	other := Open(s.js, [32]byte{8}, "x")
	if _, ok, err := other.Take(t.Context(), "a"); ok || err != nil {
		t.Error("a server with another secret finds it", err)
	}
	if _, err := s.Create(t.Context(), Owner{"a", Day}, "b", make([]byte, Most+1)); err == nil {
		t.Error("a value without bounds is kept")
	}
}

// TestARequestIsCarriedOutOnce, and what was cut off is not carried out again unless it may be.
func TestARequestIsCarriedOutOnce(t *testing.T) {
	s, _ := open(t)
	calls := 0
	do := func(id, request string, repeatable bool, err error, forget bool) string {
		one := Request{Owner: Owner{"a", Day}, ID: id, Body: []byte(request), Repeatable: repeatable, Again: id == "again"}
		answer, replayed, err := s.Do(t.Context(), one, func(string) ([]byte, bool, error) {
			calls++
			return []byte("done"), forget, err
		})
		return fmt.Sprintf("%s %v %v", answer, replayed, err)
	}
	away := errors.New("away")
	for _, c := range []struct {
		id, request        string
		repeatable, forget bool
		err                error
		want               string
		calls              int
	}{
		{"a", "x", false, false, nil, "done false <nil>", 1},
		{"a", "x", false, false, nil, "done true <nil>", 1},
		{"a", "y", false, false, nil, " false " + ErrReused.Error(), 1},
		{"b", "x", false, true, away, "done false away", 2}, // it had no effect
		{"b", "x", false, false, away, "done false away", 3},
		{"b", "x", false, false, nil, " false " + ErrCutOff.Error(), 3}, // it may have had
		{"b", "x", true, false, nil, "done false <nil>", 4},
		{"again", "x", false, false, nil, "done false <nil>", 5},
		{"again", "x", false, false, nil, "done true <nil>", 6},
		{"again", "y", false, false, nil, " false " + ErrReused.Error(), 6},
	} {
		if got := do(c.id, c.request, c.repeatable, c.err, c.forget); got != c.want || calls != c.calls {
			t.Errorf("%+v: %s, %d calls", c, got, calls)
		}
	}
}

// TestWhatARequestMakesHasItsName: a retry of what was cut off has the first one's, and the same id after its day another one.
func TestWhatARequestMakesHasItsName(t *testing.T) {
	s, _ := open(t)
	names := []string{}
	do := func() {
		t.Helper()
		one := Request{Owner: Owner{"a", Day}, ID: "nightly", Body: []byte("x"), Repeatable: true}
		_, _, err := s.Do(t.Context(), one, func(name string) ([]byte, bool, error) {
			names = append(names, name)
			return nil, false, errors.New("cut off")
		})
		if err == nil || err.Error() != "cut off" {
			t.Fatal(err)
		}
	}
	do()
	do()
	if _, ok, err := s.Take(t.Context(), "request a nightly"); !ok || err != nil { // as after its time
		t.Fatal(ok, err)
	}
	do()
	if len(names[0]) != nameLength || names[1] != names[0] || names[2] == names[0] {
		t.Errorf("named %q", names)
	}
}

// TestWhatTookEffectIsNotForgotten: another attempt at the same request, before or at once, may have had its effect. One that had none
// leaves its record, so that the next one has its name or its answer.
func TestWhatTookEffectIsNotForgotten(t *testing.T) {
	s, _ := open(t)
	var names []string
	attempt := func(id string, forget bool, err error, meanwhile func()) string {
		one := Request{Owner: Owner{"a", Day}, ID: id, Body: []byte("x"), Repeatable: true}
		answer, replayed, err := s.Do(t.Context(), one, func(name string) ([]byte, bool, error) {
			names = append(names, name)
			meanwhile()
			return []byte("done"), forget, err
		})
		return fmt.Sprintf("%s %v %v", answer, replayed, err)
	}
	away, nothing := errors.New("away"), func() {}
	attempt("after", false, away, nothing) // cut off
	attempt("after", true, away, nothing)
	attempt("after", false, nil, nothing)
	if len(names) != 3 || names[1] != names[0] || names[2] != names[0] {
		t.Errorf("after one that was cut off, and one that had no effect, the names are %q", names)
	}
	attempt("at once", true, away, func() { attempt("at once", false, nil, nothing) })
	if got := attempt("at once", false, nil, nothing); got != "done true <nil>" {
		t.Errorf("beside one that had no effect, the answer of the other one is %s", got)
	}
}

// TestOneClientDoesNotFillTheBucket: one that has used its share is refused, its retries get their answers, and others go on. What is
// kept is removed after its time, and so is the mark of what was taken.
func TestOneClientDoesNotFillTheBucket(t *testing.T) {
	s, js := open(t)
	large := make([]byte, Most-sha256.Size-nameLength)
	calls := 0
	do := func(client, id string) error {
		answer, _, err := s.Do(t.Context(), Request{Owner: Owner{client, Short}, ID: id, Body: []byte(id)}, func(string) ([]byte, bool, error) {
			calls++
			return large, false, nil
		})
		if err == nil && len(answer) != len(large) {
			t.Errorf("%s %s: %d bytes", client, id, len(answer))
		}
		return err
	}
	var usedUp *share.UsedUp
	for i := 0; usedUp == nil; i++ {
		if err := do("greedy", fmt.Sprint(i)); err != nil && !errors.As(err, &usedUp) || i > 2*topology.OnceShare/Most {
			t.Fatal(i, err)
		}
	}
	ran := calls
	if bytes, used, refused := s.Used(); usedUp.Wait <= 0 || usedUp.Wait > Short || used < bytes-Most || refused != 1 {
		t.Errorf("after %d answers it waits %s and uses %d of %d bytes, %d times refused", calls, usedUp.Wait, used, bytes, refused)
	}
	if err := do("greedy", "0"); err != nil || calls != ran {
		t.Errorf("a retry: %v, %d calls after %d", err, calls, ran)
	}
	if err := do("other", "0"); err != nil || calls != ran+1 {
		t.Errorf("another client: %v", err)
	}
	again := Request{Owner: Owner{"greedy", Short}, ID: "again", Body: []byte("x"), Again: true}
	if answer, _, err := s.Do(t.Context(), again, func(string) ([]byte, bool, error) { return []byte("done"), false, nil }); err != nil || string(answer) != "done" {
		t.Errorf("a request that need not be remembered: %s, %v", answer, err)
	}
	token := Owner{"greedy", Minute}
	if _, err := s.Create(t.Context(), token, "token a", []byte("x")); err != nil {
		t.Errorf("a token: %v", err)
	}
	ttl := func(want time.Duration) {
		t.Helper()
		stream, err := js.Stream(t.Context(), topology.OnceStream)
		streamtest.Must(t, err)
		m, err := stream.GetMsg(t.Context(), stream.CachedInfo().State.LastSeq)
		streamtest.Must(t, err)
		if got := m.Header.Get(jetstream.MsgTTLHeader); got != want.String() {
			t.Errorf("the last value is kept for %q, want %s", got, want)
		}
	}
	ttl(Minute)
	_, ok, err := s.Take(t.Context(), "token a")
	if ttl(markerTTL); !ok || err != nil {
		t.Error(ok, err)
	}
	streamtest.Must(t, do("other", "1"))
	ttl(Short)
}

// TestAFullBucketRefuses, with an error of that kind.
func TestAFullBucketRefuses(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	log, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, KeyFingerprint: "k"})
	streamtest.Must(t, err)
	s := Open(js, [32]byte{7}, log.UUID)
	stream, err := js.Stream(t.Context(), topology.OnceStream)
	streamtest.Must(t, err)
	small := stream.CachedInfo().Config
	if small.MaxBytes != topology.OnceBytes {
		t.Errorf("the bucket has at most %d bytes", small.MaxBytes)
	}
	small.MaxBytes = 1000
	_, err = js.UpdateStream(t.Context(), small)
	streamtest.Must(t, err)
	if _, err := s.Create(t.Context(), Owner{"a", Day}, "a", make([]byte, 1000)); !natsx.IsFull(err) {
		t.Errorf("it is full: %v", err)
	}
}
