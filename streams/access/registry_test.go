package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/changelog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

// by is an author who may make every change.
func by(name string) Author {
	return Author{Principal: Principal{Name: name, Role: Operator, Codes: true}}
}

func open(t *testing.T, js jetstream.JetStream) *Store {
	t.Helper()
	return Open(js, Options{Replicas: 1, Logger: streamtest.Logger(t)})
}

// run runs a registry until the test ends, and waits until it has read the keys.
func run(t *testing.T, r *Registry) *Registry {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-r.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the keys are not read")
	}
	return r
}

func create(t *testing.T, s *Store, n New) (Key, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	k, secret, err := s.Create(ctx, n, by("ann"))
	if err != nil {
		t.Fatal(err)
	}
	return k, secret
}

// becomes waits until a registry answers a key with this error, nil = it is in force.
func becomes(t *testing.T, r *Registry, secret string, want error) {
	t.Helper()
	streamtest.Eventually(t, fmt.Sprintf("the key becomes %v", want), func() bool {
		_, err := r.Authenticate(secret)
		return errors.Is(err, want)
	})
}

// TestKeysOnTwoServers: a key made, revoked and replaced, on two servers with connections of their own.
func TestKeysOnTwoServers(t *testing.T) {
	server := streamtest.Start(t)
	s := open(t, server.JetStream(t))
	first, second := run(t, s.Registry()), run(t, open(t, server.JetStream(t)).Registry())
	both := []*Registry{first, second}

	if _, err := first.Authenticate("sk_producer_x"); err != ErrUnknownKey {
		t.Errorf("a text that is no key: %v", err)
	}
	k, secret := create(t, s, New{Name: "checkout", Role: Producer, Campaigns: []string{"winter", "summer"}, Public: true})
	for _, r := range both {
		becomes(t, r, secret, nil)
		p, err := r.Authenticate(secret)
		if want := (Principal{ID: k.ID, Name: "checkout", Role: Producer, Campaigns: []string{"summer", "winter"}, Public: true}); err != nil || fmt.Sprint(p) != fmt.Sprint(want) {
			t.Errorf("%+v %v", p, err)
		}
		if p, err := r.Principal(k.ID); err != nil || p.Name != "checkout" {
			t.Errorf("by id: %+v %v", p, err)
		}
	}
	other, _, err := newKey(Producer, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The right id with another secret.
	forged := strings.Replace(other, strings.Split(other, "_")[2][:IDLen], k.ID, 1)
	for _, bad := range []string{other, forged, ""} {
		if _, err := first.Authenticate(bad); err != ErrUnknownKey {
			t.Errorf("%q: %v", bad, err)
		}
	}

	// Revoked: by name, at both, with a call of every watcher.
	var mu sync.Mutex
	ended := map[string]int{}
	for i, r := range both {
		t.Cleanup(r.Watch(func(id string) {
			mu.Lock()
			defer mu.Unlock()
			ended[fmt.Sprint(i, " ", id)]++
		}))
	}
	begun := time.Now()
	if _, err := s.Revoke(t.Context(), "checkout", by("ann")); err != nil {
		t.Fatal(err)
	}
	for _, r := range both {
		becomes(t, r, secret, ErrRevoked)
		if _, err := r.Principal(k.ID); err != ErrRevoked {
			t.Errorf("by id: %v", err)
		}
	}
	t.Logf("revoked at both servers after %s", time.Since(begun))
	streamtest.Eventually(t, "both watchers are called", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return ended["0 "+k.ID] == 1 && ended["1 "+k.ID] == 1
	})
	if again, err := s.Revoke(t.Context(), k.ID, by("bob")); err != nil || again.EndedBy != "ann" {
		t.Errorf("revoked again: %+v %v", again, err)
	}

	// Replaced at once.
	old, oldSecret := create(t, s, New{Name: "checkout", Role: Producer})
	next, nextSecret, err := s.Rotate(t.Context(), "checkout", 0, by("ann"))
	if err != nil || next.Name != "checkout" || next.Role != Producer || next.Replaces != old.ID || next.ID == old.ID {
		t.Fatalf("%+v %v", next, err)
	}
	for _, r := range both {
		becomes(t, r, nextSecret, nil)
		becomes(t, r, oldSecret, ErrRevoked)
	}
	if _, _, err := s.Rotate(t.Context(), old.ID, 0, by("ann")); !errors.Is(err, ErrEnded) {
		t.Errorf("a replaced key is replaced again: %v", err)
	}
	for _, r := range both { // it is the same client
		if p, err := r.Authenticate(nextSecret); err != nil || p.ID != next.ID || p.Client() != old.ID {
			t.Errorf("%+v is client %q, want %s; %v", p, p.Client(), old.ID, err)
		}
	}

	all, err := s.List(t.Context())
	if err != nil || len(all) != 3 || all[0].EndedBy != "ann" || all[1].ReplacedBy != next.ID || !all[2].Ended.IsZero() {
		t.Errorf("%+v %v", all, err)
	}
	for _, k := range all {
		if strings.Contains(fmt.Sprintf("%+v", k), strings.Split(nextSecret, "_")[2]) {
			t.Errorf("the list has a secret: %+v", k)
		}
	}
}

// TestAnOverlap: a replaced key works until the overlap is over, by the server's clock; then its streams end.
func TestAnOverlap(t *testing.T) {
	s := open(t, streamtest.Start(t).JetStream(t))
	r := run(t, s.Registry())
	ended := make(chan string, 10)
	t.Cleanup(r.Watch(func(id string) { ended <- id }))
	old, secret := create(t, s, New{Name: "ann", Role: Operator})
	const overlap = 3 * time.Second
	begun := time.Now()
	_, nextSecret, err := s.Rotate(t.Context(), "ann", overlap, by("ann"))
	if err != nil {
		t.Fatal(err)
	}
	becomes(t, r, nextSecret, nil)
	if _, err := r.Authenticate(secret); err != nil && time.Since(begun) < overlap {
		t.Errorf("within the overlap: %v", err)
	}
	becomes(t, r, secret, ErrRevoked)
	if took := time.Since(begun); took < overlap {
		t.Errorf("ended after %s", took)
	}
	select {
	case id := <-ended:
		if id != old.ID {
			t.Errorf("%s ended", id)
		}
	case <-time.After(time.Minute):
		t.Error("the end of the overlap was not reported")
	}
}

// TestANameIsRevokedWithItsOldKeys: by its name, a replaced key ends too, though its overlap is not over; by its id, it alone.
func TestANameIsRevokedWithItsOldKeys(t *testing.T) {
	var about []string
	s := Open(streamtest.Start(t).JetStream(t), Options{Replicas: 1, Logger: streamtest.Logger(t),
		Record: func(_ context.Context, _ Author, action, text string) error {
			about = append(about, action+" "+text)
			return nil
		}})
	r := run(t, s.Registry())
	ended := make(chan string, 10)
	t.Cleanup(r.Watch(func(id string) { ended <- id }))
	first, leaked := create(t, s, New{Name: "shop", Role: Producer})
	second, secondSecret, err := s.Rotate(t.Context(), "shop", 720*time.Hour, by("ann"))
	if err != nil {
		t.Fatal(err)
	}
	_, other := create(t, s, New{Name: "shop 2", Role: Producer})
	for _, secret := range []string{leaked, secondSecret, other} {
		becomes(t, r, secret, nil)
	}
	k, err := s.Revoke(t.Context(), "shop", by("ann"))
	if err != nil || k.ID != second.ID || !k.Revoked {
		t.Fatalf("%+v %v", k, err)
	}
	becomes(t, r, leaked, ErrRevoked)
	becomes(t, r, secondSecret, ErrRevoked)
	becomes(t, r, other, nil)
	got := map[string]bool{}
	for range 2 {
		select {
		case id := <-ended:
			got[id] = true
		case <-time.After(time.Minute):
			t.Fatalf("only %v ended", got)
		}
	}
	if !got[first.ID] || !got[second.ID] || about[len(about)-1] != "revoke "+first.ID+" "+second.ID+" shop producer" {
		t.Errorf("%v ended; recorded: %q", got, about)
	}
	if _, err := s.Revoke(t.Context(), "shop", by("ann")); !errors.Is(err, ErrNoSuchKey) {
		t.Errorf("revoked again by name: %v", err)
	}

	third, thirdSecret := create(t, s, New{Name: "shop", Role: Producer})
	_, fourthSecret, err := s.Rotate(t.Context(), third.ID, time.Hour, by("ann"))
	if err != nil {
		t.Fatal(err)
	}
	becomes(t, r, fourthSecret, nil)
	if k, err := s.Revoke(t.Context(), third.ID, by("bob")); err != nil || k.ID != third.ID || k.EndedBy != "bob" || k.Ended.After(time.Now()) {
		t.Errorf("%+v %v", k, err)
	}
	becomes(t, r, thirdSecret, ErrRevoked)
	becomes(t, r, fourthSecret, nil)
}

// TestRevocationsNeedNoClock: a key that was revoked, or replaced at once, by a server whose clock is ahead ends at once for all,
// and stays so where a clock is set back.
func TestRevocationsNeedNoClock(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	at := func(off time.Duration) *Store {
		return Open(js, Options{Replicas: 1, Logger: streamtest.Logger(t), Now: func() time.Time { return time.Now().Add(off) }})
	}
	s, ahead := at(0), at(10*time.Minute)
	r, behind := run(t, s.Registry()), run(t, at(-time.Hour).Registry())
	ended := make(chan string, 10)
	t.Cleanup(behind.Watch(func(id string) { ended <- id }))
	revoked, revokedSecret := create(t, s, New{Name: "ann", Role: Operator})
	replaced, replacedSecret := create(t, s, New{Name: "bob", Role: Operator})
	overlapping, overlappingSecret := create(t, s, New{Name: "eve", Role: Operator})
	if _, _, err := ahead.Rotate(t.Context(), "bob", 0, by("ann")); err != nil {
		t.Fatal(err)
	}
	// By the clock that is ahead this overlap is over, by the others it is not.
	if _, _, err := s.Rotate(t.Context(), "eve", time.Minute, by("ann")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ann", "eve"} {
		if _, err := ahead.Revoke(t.Context(), name, by("ann")); err != nil {
			t.Fatal(err)
		}
	}
	for _, secret := range []string{revokedSecret, replacedSecret, overlappingSecret} {
		becomes(t, r, secret, ErrRevoked)
		becomes(t, behind, secret, ErrRevoked)
	}
	want := map[string]bool{revoked.ID: true, replaced.ID: true, overlapping.ID: true}
	for len(want) > 0 {
		select {
		case id := <-ended:
			delete(want, id)
		case <-time.After(time.Minute):
			t.Fatalf("%v are not reported", want)
		}
	}
}

// TestRefusedChanges store nothing.
func TestRefusedChanges(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	s := open(t, js)
	create(t, s, New{Name: "ann", Role: Operator})
	many := make([]string, MaxCampaigns+1)
	for i := range many {
		many[i] = fmt.Sprintf("c%02d", i)
	}
	for _, c := range []struct {
		key  New
		want string
	}{
		{New{Name: "", Role: Operator}, "name"},
		{New{Name: "a\nb", Role: Operator}, "name"},
		{New{Name: "local:eve", Role: Operator}, "name"},
		{New{Name: strings.Repeat("x", 65), Role: Operator}, "name"},
		{New{Name: "x", Role: NoRole}, "role"},
		{New{Name: "x", Role: Server}, "role"},
		{New{Name: "x", Role: Sender, Campaigns: []string{"summer"}}, "campaigns"},
		{New{Name: "x", Role: Analyst, Campaigns: []string{"summer"}}, "campaigns"},
		{New{Name: "x", Role: Producer, Campaigns: []string{}}, "campaigns"},
		{New{Name: "x", Role: Producer, Campaigns: many}, "campaigns"},
		{New{Name: "x", Role: Producer, Campaigns: []string{"a.b"}}, "campaigns"},
		{New{Name: "x", Role: Producer, Campaigns: []string{"a", "a"}}, "campaigns"},
		{New{Name: "x", Role: Support, Public: true}, "public"},
		{New{Name: "x", Role: Sender, Codes: true}, "codes"},
		{New{Name: "Ωmega", Role: Sender}, "audience"},
		{New{Name: "ann", Role: Support}, "name"},
	} {
		_, secret, err := s.Create(t.Context(), c.key, by("ann"))
		if err == nil || secret != "" || !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNameTaken) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.key, err)
		}
	}
	for _, name := range []string{"", "a\nb", strings.Repeat("x", 65)} {
		if _, _, err := s.Create(t.Context(), New{Name: "x", Role: Support}, by(name)); !errors.Is(err, ErrInvalid) {
			t.Errorf("by %q: %v", name, err)
		}
	}
	if _, err := s.Revoke(t.Context(), "nobody", by("ann")); !errors.Is(err, ErrNoSuchKey) {
		t.Error(err)
	}
	for _, overlap := range []time.Duration{-1, MaxOverlap + 1} {
		if _, _, err := s.Rotate(t.Context(), "ann", overlap, by("ann")); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
	}
	if all, err := s.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%+v %v", all, err)
	}
}

// TestTwoWritersOfOneName: of keys made at once under one name, one is.
func TestTwoWritersOfOneName(t *testing.T) {
	server := streamtest.Start(t)
	var wg sync.WaitGroup
	made := make(chan string, 8)
	for range 8 {
		s := open(t, server.JetStream(t))
		wg.Go(func() {
			_, secret, err := s.Create(t.Context(), New{Name: "ann", Role: Operator}, by("ann"))
			if err == nil {
				made <- secret
			} else if !errors.Is(err, ErrNameTaken) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(made) != 1 {
		t.Errorf("%d keys were made", len(made))
	}
}

// TestKeysWhileNATSIsAway: known keys go on working; a server that starts then knows none.
func TestKeysWhileNATSIsAway(t *testing.T) {
	server := streamtest.Start(t)
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
	s := open(t, server.JetStream(t))
	_, secret := create(t, s, New{Name: "ann", Role: Operator})
	r := open(t, js).Registry()
	r.every = 100 * time.Millisecond
	run(t, r)
	becomes(t, r, secret, nil)
	link.Cut(false, true)
	streamtest.Eventually(t, "the status shows it", func() bool { return !r.Status().Following && r.Status().Error != "" })
	if _, err := r.Authenticate(secret); err != nil {
		t.Errorf("a known key: %v", err)
	}
	starting := open(t, js).Registry()
	if _, err := starting.Authenticate(secret); err != ErrNotReady {
		t.Errorf("at a server that has not read the keys: %v", err)
	}
	if _, err := s.Revoke(t.Context(), "ann", by("ann")); err != nil {
		t.Fatal(err)
	}
	link.Heal()
	becomes(t, r, secret, ErrRevoked)
}

// TestALostBucket: running servers keep their keys; one that starts has none; the first new key begins a new history.
func TestALostBucket(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	s := open(t, js)
	_, secret := create(t, s, New{Name: "ann", Role: Operator})
	r := s.Registry()
	r.every = 100 * time.Millisecond
	run(t, r)
	becomes(t, r, secret, nil)
	if err := js.DeleteStream(t.Context(), topology.AccessStream); err != nil {
		t.Fatal(err)
	}
	streamtest.Eventually(t, "the loss is reported", func() bool { return strings.Contains(r.Status().Error, "is missing") })
	started := run(t, open(t, js).Registry())
	streamtest.Eventually(t, "that the new one is empty is reported", func() bool { return strings.Contains(r.Status().Error, "without a key") })
	if _, err := r.Authenticate(secret); err != nil {
		t.Errorf("at the running server: %v", err)
	}
	if _, err := started.Authenticate(secret); err != ErrUnknownKey {
		t.Errorf("at the one that started: %v", err)
	}
	_, next := create(t, s, New{Name: "bob", Role: Operator})
	for _, r := range []*Registry{r, started} {
		becomes(t, r, next, nil)
		becomes(t, r, secret, ErrUnknownKey)
	}
}

// TestWhatIsNotUnderstood makes no key and ends none, but a revocation counts whatever else it says.
func TestWhatIsNotUnderstood(t *testing.T) {
	st := newState()
	put := func(n uint64, value string) error {
		return st.apply(changelog.Message{Key: changelog.Key(n), Value: []byte(value), Revision: n})
	}
	hash := strings.Repeat("ab", 32)
	good := `{"action":"create","key":"01h8z3qk","role":"producer","name":"x","sha256":"` + hash + `","by":"ann","at":"2026-11-27T12:00:00Z"}`
	for i, bad := range []string{
		``, `null`, `[]`, `200`, good[:50], good + good,
		strings.Replace(good, `"by"`, `"until_restart":true,"by"`, 1),
		strings.Replace(good, "create", "borrow", 1),
		strings.Replace(good, "producer", "server", 1),
		strings.Replace(good, "01h8z3qk", "01h8z3qi", 1),
		strings.Replace(good, "01h8z3qk", "", 1),
		strings.Replace(good, hash, hash[:62], 1),
		strings.Replace(good, hash, strings.Repeat("zz", 32), 1),
		strings.Replace(good, "2026-11-27T12:00:00Z", "yesterday", 1),
		strings.Replace(good, `"name":"x"`, `"name":""`, 1),
		strings.Replace(good, `"by"`, `"campaigns":["b","a"],"by"`, 1),
		`{"action":"revoke","key":"01h8z3qk","by":"ann","at":"2026-11-27T12:00:00Z"}`,
		`{"action":"rotate","key":"01h8z3qm","replaces":"01h8z3qk","sha256":"` + hash + `","by":"ann","at":"2026-11-27T12:00:00Z"}`,
	} {
		if err := put(uint64(i+1), bad); err == nil || len(st.keys) != 0 {
			t.Errorf("%s: %v, %v", bad, err, st.keys)
		}
	}
	n := st.Next()
	if err := put(n, good); err != nil {
		t.Fatal(err)
	}
	if err := put(n+1, good); err == nil {
		t.Error("an id is made twice")
	}
	if err := st.apply(changelog.Message{Key: changelog.Key(n + 2), Deleted: true}); err == nil {
		t.Error("a deletion counts")
	}
	if err := st.apply(changelog.Message{Key: "change.last", Value: []byte(strings.Replace(good, "01h8z3qk", "01h8z3qm", 1))}); err == nil || len(st.keys) != 1 {
		t.Error("a change without a number counts")
	}
	if err := put(n+3, `{"action":"revoke","key":"01h8z3qk","reason":"of a newer version","by":"ann","at":"2026-11-27T13:00:00Z"}`); err != nil || st.keys["01h8z3qk"].Ended.IsZero() {
		t.Errorf("%v %+v", err, st.keys["01h8z3qk"])
	}
	if err := put(n+4, strings.Replace(good, "01h8z3qk", "01h8z3qm", 1)); err != nil || st.ignored != 21 {
		t.Errorf("%v, %d ignored", err, st.ignored)
	}
}

// TestLastUse is stored at most once an hour, and the latest wins.
func TestLastUse(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: topology.StateBucket}); err != nil {
		t.Fatal(err)
	}
	s := open(t, js)
	k, _ := create(t, s, New{Name: "ann", Role: Operator})
	u := uses{stored: map[string]time.Time{}}
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		used, want time.Time
	}{
		{at, at}, {at.Add(59 * time.Minute), at}, {at.Add(-time.Hour), at}, {at.Add(time.Hour), at.Add(time.Hour)},
	} {
		u.note(k.ID, step.used)
		if err := u.store(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		all, err := s.List(t.Context())
		if err != nil || !all[0].LastUsed.Equal(step.want) {
			t.Errorf("used %s: stored %s, %v", step.used, all[0].LastUsed, err)
		}
	}
	// Another server, with an older use.
	late := uses{stored: map[string]time.Time{}}
	late.note(k.ID, at)
	if err := late.store(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if all, err := s.List(t.Context()); err != nil || !all[0].LastUsed.Equal(at.Add(time.Hour)) {
		t.Errorf("%+v %v", all, err)
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	s := Open(nil, Options{})
	r := s.Registry()
	secret, id, err := newKey(Producer, nil)
	if err != nil {
		b.Fatal(err)
	}
	keys := map[string]*Key{id: {ID: id, Name: "x", Role: Producer, hash: digest(secret)}}
	r.keys.Store(&keys)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Authenticate(secret); err != nil {
			b.Fatal(err)
		}
	}
}
