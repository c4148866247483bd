package access

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

// by is an author who may make every change.
func by(name string) Author {
	return Author{Principal: Principal{Name: name, Role: Operator, Codes: true, Customers: true}}
}

func open(t *testing.T, js jetstream.JetStream) *Store {
	t.Helper()
	return Open(js, Options{Logger: streamtest.Logger(t)})
}

// run runs a registry until the test ends, and waits until it has read the keys.
func run(t *testing.T, r *Registry) *Registry {
	t.Helper()
	r.InForce.Watch()
	streamtest.Background(t, r.Run)
	<-r.Ready()
	return r
}

func create(t *testing.T, s *Store, n New) (Key, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	k, secret, err := s.Create(ctx, n, by("ann"))
	streamtest.Must(t, err)
	return k, secret
}

func rotate(t *testing.T, s *Store, idOrName string, overlap time.Duration) (Key, string) {
	t.Helper()
	k, secret, err := s.Rotate(t.Context(), idOrName, overlap, by("ann"))
	streamtest.Must(t, err)
	return k, secret
}

// is checks what a registry answers a key, nil = it is in force.
func is(t *testing.T, r *Registry, secret string, want error) {
	t.Helper()
	if _, err := r.Authenticate(secret); !errors.Is(err, want) {
		t.Errorf("a key is answered with %v, want %v", err, want)
	}
}

// becomes waits until a registry that reads from a bucket has read the change after which a key is answered so.
func becomes(t *testing.T, r *Registry, secret string, want error) {
	t.Helper()
	as := func(uint64) bool { _, err := r.Authenticate(secret); return errors.Is(err, want) }
	if !as(0) {
		r.InForce.WaitFor(t, as)
	}
}

// ended collects the ids that are reported as ended, in the order of the reports.
func ended(t *testing.T, r *Registry) func() []string {
	var mu sync.Mutex
	var ids []string
	t.Cleanup(r.Watch(func(id string) {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, id)
	}))
	return func() []string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		all := ids
		ids = nil
		return slices.Sorted(slices.Values(all))
	}
}

func ids(keys ...Key) (all []string) {
	for _, k := range keys {
		all = append(all, k.ID)
	}
	slices.Sort(all)
	return all
}

// TestKeysThroughTheBucket: made, replaced and revoked, each in force within a second on two servers with connections of their own.
func TestKeysThroughTheBucket(t *testing.T) {
	server := streamtest.Start(t)
	s := open(t, server.JetStream(t))
	both := []*Registry{run(t, s.Registry()), run(t, open(t, server.JetStream(t)).Registry())}
	inForce := func(secret string, want error) {
		t.Helper()
		answered := time.Now()
		for _, r := range both {
			becomes(t, r, secret, want)
		}
		if took := time.Since(answered); took > time.Second {
			t.Errorf("in force %s after the change was answered, promised is a second", took)
		}
	}
	k, secret := create(t, s, New{Name: "checkout", Role: Producer})
	inForce(secret, nil)
	next, nextSecret := rotate(t, s, "checkout", 0)
	inForce(nextSecret, nil)
	inForce(secret, ErrRevoked)
	if _, err := s.Revoke(t.Context(), "checkout", by("ann")); err != nil {
		t.Fatal(err)
	}
	inForce(nextSecret, ErrRevoked)
	for _, r := range both {
		if st := r.Status(); st.Change != 3 || !st.Following {
			t.Errorf("%+v", st)
		}
	}
	if all, err := s.List(t.Context()); err != nil || len(all) != 2 || !slices.Contains(ids(all...), k.ID) || next.Replaces != k.ID {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestKeys: a key is what it was made as, and ends when it is revoked or replaced.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(t)
		s, r := m.Store(nil), m.registry(t, nil)
		if _, err := r.Authenticate("sk_producer_x"); err != ErrNotReady {
			t.Errorf("before the keys are read: %v", err)
		}
		if _, err := r.Principal("01h8z3qk"); err != ErrNotReady {
			t.Errorf("before the keys are read: %v", err)
		}
		gone := ended(t, r)
		k, secret := create(t, s, New{Name: "checkout", Role: Producer, Campaigns: []string{"winter", "summer"}, Public: true})
		is(t, r, "sk_producer_x", ErrUnknownKey)
		p, err := r.Authenticate(secret)
		if want := (Principal{ID: k.ID, Name: "checkout", Role: Producer, Campaigns: []string{"summer", "winter"}, Public: true}); err != nil || fmt.Sprint(p) != fmt.Sprint(want) {
			t.Errorf("%+v %v", p, err)
		}
		if p, err := r.Principal(k.ID); err != nil || p.Name != "checkout" {
			t.Errorf("by id: %+v %v", p, err)
		}
		other, _ := newKey(Producer)
		// The right id with another secret.
		is(t, r, strings.Replace(other, strings.Split(other, "_")[2][:IDLen], k.ID, 1), ErrUnknownKey)
		is(t, r, other, ErrUnknownKey)
		is(t, r, "", ErrUnknownKey)

		if _, err := s.Revoke(t.Context(), "checkout", by("ann")); err != nil {
			t.Fatal(err)
		}
		is(t, r, secret, ErrRevoked)
		if _, err := r.Principal(k.ID); err != ErrRevoked {
			t.Errorf("by id: %v", err)
		}
		if got := gone(); !slices.Equal(got, ids(k)) {
			t.Errorf("%v ended", got)
		}
		if again, err := s.Revoke(t.Context(), k.ID, by("bob")); err != nil || again.EndedBy != "ann" {
			t.Errorf("revoked again: %+v %v", again, err)
		}

		// Replaced at once. It is the same client.
		old, oldSecret := create(t, s, New{Name: "checkout", Role: Producer})
		next, nextSecret := rotate(t, s, "checkout", 0)
		if next.Name != "checkout" || next.Role != Producer || next.Replaces != old.ID || next.ID == old.ID {
			t.Errorf("%+v", next)
		}
		is(t, r, oldSecret, ErrRevoked)
		if p, err := r.Authenticate(nextSecret); err != nil || p.ID != next.ID || p.Client() != old.ID {
			t.Errorf("%+v is client %q, want %s; %v", p, p.Client(), old.ID, err)
		}
		last, lastSecret := rotate(t, s, "checkout", 0)
		if p, err := r.Authenticate(lastSecret); err != nil || p.ID != last.ID || p.Client() != old.ID {
			t.Errorf("replaced twice: %+v is client %q, want %s; %v", p, p.Client(), old.ID, err)
		}
		if _, _, err := s.Rotate(t.Context(), old.ID, 0, by("ann")); !errors.Is(err, ErrEnded) {
			t.Errorf("a replaced key is replaced again: %v", err)
		}
		all, err := s.List(t.Context())
		ends := map[string]string{}
		for _, k := range all {
			if ends[k.ID] = k.EndedBy + k.ReplacedBy; strings.Contains(fmt.Sprintf("%+v", k), strings.Split(nextSecret, "_")[2]) {
				t.Errorf("the list has a secret: %+v", k)
			}
		}
		if want := map[string]string{k.ID: "ann", old.ID: "ann" + next.ID, next.ID: "ann" + last.ID, last.ID: ""}; err != nil || !maps.Equal(ends, want) {
			t.Errorf("%v, want %v; %v", ends, want, err)
		}
	})
}

// TestAnOverlap: a replaced key works until the overlap is over, by the server's clock; then its streams end.
func TestAnOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(t)
		s, r := m.Store(nil), m.registry(t, nil)
		gone := ended(t, r)
		old, secret := create(t, s, New{Name: "ann", Role: Operator})
		const overlap = 72 * time.Hour // longer than the registry waits at once
		_, nextSecret := rotate(t, s, "ann", overlap)
		is(t, r, nextSecret, nil)
		<-time.After(overlap - time.Nanosecond)
		is(t, r, secret, nil)
		if got := gone(); len(got) != 0 {
			t.Errorf("%v ended within the overlap", got)
		}
		<-time.After(time.Nanosecond)
		is(t, r, secret, ErrRevoked)
		is(t, r, nextSecret, nil)
		if got := gone(); !slices.Equal(got, ids(old)) {
			t.Errorf("%v ended", got)
		}
	})
}

// TestLogins: an analyst has one log-in by name, whose password is that of the newest key in force, and whose id is the first one's
// through all rotations; a key of a name that was revoked is another one.
func TestLogins(t *testing.T) {
	m := NewMemory(t)
	s, r := m.Store(nil), m.registry(t, nil)
	login := func(want Key, first string) {
		t.Helper()
		all := r.Logins()
		keys := *r.keys.Load()
		if len(all) != 1 || all[0] != (Login{"eve", first, keys[want.ID].scram, true, false}) {
			t.Errorf("log-ins are %+v, want the first %s, and the password of %s", all, first, want.ID)
		}
	}
	create(t, s, New{Name: "ann", Role: Operator, Codes: true})
	first, _ := create(t, s, New{Name: "eve", Role: Analyst, Codes: true})
	login(first, first.ID)
	second, _ := rotate(t, s, "eve", time.Hour)
	login(second, first.ID)
	third, _ := rotate(t, s, "eve", time.Hour)
	login(third, first.ID)
	_, err := s.Revoke(t.Context(), third.ID, by("ann"))
	streamtest.Must(t, err)
	login(second, first.ID) // within its overlap
	_, err = s.Revoke(t.Context(), "eve", by("ann"))
	streamtest.Must(t, err)
	streamtest.Equal(t, "log-ins without a key", len(r.Logins()), 0)
	again, _ := create(t, s, New{Name: "eve", Role: Analyst, Codes: true})
	login(again, again.ID)
}

// TestANameIsRevokedWithItsOldKeys: by its name, a replaced key ends too, though its overlap is not over; by its id, it alone.
func TestANameIsRevokedWithItsOldKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(t)
		s, r := m.Store(nil), m.registry(t, nil)
		gone := ended(t, r)
		first, leaked := create(t, s, New{Name: "shop", Role: Producer})
		<-time.After(time.Second)
		second, secondSecret := rotate(t, s, "shop", 720*time.Hour)
		_, other := create(t, s, New{Name: "shop 2", Role: Producer})
		for _, secret := range []string{leaked, secondSecret, other} {
			is(t, r, secret, nil)
		}
		if k, err := s.Revoke(t.Context(), "shop", by("ann")); err != nil || k.ID != second.ID || !k.Revoked {
			t.Fatalf("%+v %v", k, err)
		}
		is(t, r, leaked, ErrRevoked)
		is(t, r, secondSecret, ErrRevoked)
		is(t, r, other, nil)
		recorded := m.Recorded()
		if got, last := gone(), recorded[len(recorded)-1]; !slices.Equal(got, ids(first, second)) || last.Action+" "+last.About != "revoke "+first.ID+" "+second.ID+" shop producer" {
			t.Errorf("%v ended; recorded: %+v", got, last)
		}
		if _, err := s.Revoke(t.Context(), "shop", by("ann")); !errors.Is(err, ErrNoSuchKey) {
			t.Errorf("revoked again by name: %v", err)
		}

		third, thirdSecret := create(t, s, New{Name: "shop", Role: Producer})
		_, fourthSecret := rotate(t, s, third.ID, time.Hour)
		if k, err := s.Revoke(t.Context(), third.ID, by("bob")); err != nil || k.ID != third.ID || k.EndedBy != "bob" || k.Ended.After(time.Now()) {
			t.Errorf("%+v %v", k, err)
		}
		is(t, r, thirdSecret, ErrRevoked)
		is(t, r, fourthSecret, nil)
	})
}

// off is a clock that is set wrong.
type off struct {
	wall.Clock
	by time.Duration
}

func (o off) Now() time.Time { return o.Clock.Now().Add(o.by) }

// TestRevocationsNeedNoClock: a key that was revoked, or replaced at once, by a server whose clock is ahead ends at once for all,
// and stays so where a clock is set back.
func TestRevocationsNeedNoClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(t)
		s, ahead := m.Store(nil), m.Store(off{wall.Machine, 10 * time.Minute})
		r, late := m.registry(t, nil), m.registry(t, off{wall.Machine, -time.Hour})
		gone := ended(t, late)
		revoked, revokedSecret := create(t, s, New{Name: "ann", Role: Operator})
		replaced, replacedSecret := create(t, s, New{Name: "bob", Role: Operator})
		overlapping, overlappingSecret := create(t, s, New{Name: "eve", Role: Operator})
		rotate(t, ahead, "bob", 0)
		// By the clock that is ahead this overlap is over, by the others it is not.
		rotate(t, s, "eve", time.Minute)
		for _, name := range []string{"ann", "eve"} {
			if _, err := ahead.Revoke(t.Context(), name, by("ann")); err != nil {
				t.Fatal(err)
			}
		}
		for _, secret := range []string{revokedSecret, replacedSecret, overlappingSecret} {
			is(t, r, secret, ErrRevoked)
			is(t, late, secret, ErrRevoked)
		}
		got := gone()
		for _, id := range ids(revoked, replaced, overlapping) {
			if !slices.Contains(got, id) {
				t.Errorf("the end of %s is not reported", id)
			}
		}
	})
}

// TestRefusedChanges store nothing.
func TestRefusedChanges(t *testing.T) {
	s := NewMemory(t).Store(nil)
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
		{New{Name: strings.Repeat("x", 56), Role: Analyst}, "name has 56 bytes, and of an analyst at most 55"},
		{New{Name: "x", Role: NoRole}, "role"},
		{New{Name: "x", Role: Server}, "role"},
		{New{Name: "x", Role: Sender, Campaigns: []string{"summer"}}, "campaigns"},
		{New{Name: "x", Role: Analyst, Campaigns: []string{"summer"}}, "campaigns"},
		{New{Name: "x", Role: Producer, Campaigns: []string{}}, "campaigns"},
		{New{Name: "x", Role: Producer, Campaigns: many}, "campaigns"},
		{New{Name: "x", Role: Producer, Campaigns: []string{"a.b"}}, "campaigns"},
		{New{Name: "x", Role: Producer, Campaigns: []string{"a", "a"}}, "campaigns"},
		{New{Name: "x", Role: Support, Public: true}, "public"},
		{New{Name: "x", Role: Producer, Origins: []string{"https://shop.example"}}, "origins"},
		{New{Name: "x", Role: Producer, Public: true, Origins: make([]string, MaxOrigins+1)}, "origins"},
		{New{Name: "x", Role: Producer, Rate: -1}, "rate"},
		{New{Name: "x", Role: Producer, Rate: MaxRate + 1}, "rate"},
		{New{Name: "x", Role: Sender, Codes: true}, "codes"},
		{New{Name: "x", Role: Sender, Customers: true}, "customers"},
		{New{Name: "Ωmega", Role: Sender}, "audience"},
		{New{Name: "ann", Role: Support}, "name"},
	} {
		_, secret, err := s.Create(t.Context(), c.key, by("ann"))
		if err == nil || secret != "" || !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNameTaken) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.key, err)
		}
	}
	for _, origin := range []string{"https://Shop.example", "https://shop.example/", "https://shop.example:443", "http://shop.example:80", "https://shop.example:",
		"shop.example", "https://", "https://shop.example?", "ftp://shop.example", "https://ann@shop.example", "null", "", "https://twice.example"} {
		n := New{Name: "x", Role: Producer, Public: true, Origins: []string{"https://twice.example", origin}}
		if _, _, err := s.Create(t.Context(), n, by("ann")); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "origins") {
			t.Errorf("%s: %v", origin, err)
		}
	}
	if _, _, err := s.Create(t.Context(), New{Name: "x", Role: Support}, by("")); !errors.Is(err, ErrInvalid) {
		t.Errorf("without an author: %v", err)
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

// TestWhatIsNotUnderstood makes no key and ends none, but a revocation counts whatever else it has.
func TestWhatIsNotUnderstood(t *testing.T) {
	f := open(t, nil).history.Fold()
	put := func(record string) string {
		n := uint64(len(f.Changes) + 1)
		return f.Apply(registry.Message{Key: registry.Key(n), Value: []byte(`{"change":` + record + `,"by":"ann","at":"2026-11-27T12:00:00Z"}`), Revision: n}).Ignored
	}
	hash := base64.StdEncoding.EncodeToString(make([]byte, 32))
	good := `{"action":"create","key":"01h8z3qk","new":{"role":"producer","name":"x"},"sha256":"` + hash + `"}`
	change := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for _, bad := range []string{
		change(`"name"`, `"until_restart":true,"name"`),
		change("create", "borrow"),
		change("producer", "server"),
		change("01h8z3qk", "01h8z3qi"),
		change("01h8z3qk", ""),
		change(hash, hash[:40]),
		change(`"new":{"role":"producer","name":"x"},`, ""),
		change(`"name":"x"`, `"name":""`),
		change(`"name"`, `"campaigns":["b","a"],"name"`),
		`{"action":"revoke","key":"01h8z3qk"}`,
		`{"action":"rotate","key":"01h8z3qm","replaces":"01h8z3qk","sha256":"` + hash + `"}`,
	} {
		if why := put(bad); why == "" || len(f.State.keys) != 0 {
			t.Errorf("%s: %q, %v", bad, why, f.State.keys)
		}
	}
	if why := put(good); why != "" {
		t.Fatal(why)
	}
	if put(good) == "" {
		t.Error("an id is made twice")
	}
	if why := put(`{"action":"revoke","key":"01h8z3qk","reason":"of a newer version"}`); why != "" || f.State.keys["01h8z3qk"].Ended.IsZero() {
		t.Errorf("%s %+v", why, f.State.keys["01h8z3qk"])
	}
}

// withState is the store of a server with the bucket of last uses.
func withState(t *testing.T) *Store {
	js := streamtest.Start(t).JetStream(t)
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: topology.StateBucket}); err != nil {
		t.Fatal(err)
	}
	return open(t, js)
}

// TestLastUse is stored at most once an hour, and the latest wins.
func TestLastUse(t *testing.T) {
	s := withState(t)
	k, _ := create(t, s, New{Name: "ann", Role: Operator})
	one, other := uses{stored: map[string]time.Time{}}, uses{stored: map[string]time.Time{}} // servers
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	later := at.Add(time.Hour)
	for _, step := range []struct {
		u          *uses
		used, want time.Time
	}{
		{&one, at, at}, {&one, at.Add(59 * time.Minute), at}, {&one, at.Add(-time.Hour), at}, {&one, later, later}, {&other, at, later},
	} {
		step.u.note(k.ID, step.used)
		streamtest.Must(t, step.u.store(t.Context(), s))
		all, err := s.List(t.Context())
		if err != nil || !all[0].LastUsed.Equal(step.want) {
			t.Errorf("used %s: stored %s, %v", step.used, all[0].LastUsed, err)
		}
	}
}

// TestWrongCodesOfAnHour are counted by key at all servers together, and a server that starts gives a key what is left of its
// burst.
func TestWrongCodesOfAnHour(t *testing.T) {
	s := withState(t)
	k, _ := create(t, s, New{Name: "shop", Role: Producer})
	now := s.history.Clock.Now()
	try := func(b *WrongCodes, most int) (tried int) {
		for range most {
			if end, wait := b.Reserve(k.Principal(), netip.Addr{}); wait == 0 {
				end(true)
				tried++
			}
		}
		return tried
	}
	for range 2 { // servers
		u := uses{stored: map[string]time.Time{}}
		b := newWrongCodes(&u)
		u.note(k.ID, now)
		for range 2 {
			try(b, 1000)
			streamtest.Must(t, u.store(t.Context(), s))
		}
	}
	if all, err := s.List(t.Context()); err != nil || all[0].WrongCodes != 4000 {
		t.Errorf("%+v, %v", all, err)
	}
	for _, early := range []int{0, 100} { // codes that are tried before the count is read
		b := newWrongCodes(&uses{})
		try(b, early)
		b.before(&k, 4000)
		if tried, left := try(b, 20_000), int(PerKey.Burst)-4000-early; tried < left || tried > left+100 {
			t.Errorf("after a restart %d codes may be tried, %d are left", tried, left)
		}
	}
}

// TestAWriteWithoutAResult: the secret that is returned opens the key that was stored late, and a revocation finds it. Package
// registry shows that each is one change.
func TestAWriteWithoutAResult(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	r := run(t, open(t, js).Registry())
	broken := func() *Store { return open(t, streamtest.LateWrite(js)) }
	k, secret, err := broken().Create(t.Context(), New{Name: "ann", Role: Operator}, by("bob"))
	streamtest.Must(t, err)
	becomes(t, r, secret, nil)
	next, nextSecret, err := broken().Rotate(t.Context(), "ann", 0, by("bob"))
	if err != nil || next.Replaces != k.ID {
		t.Fatalf("%+v %v", next, err)
	}
	becomes(t, r, nextSecret, nil)
	becomes(t, r, secret, ErrRevoked)
	if ended, err := broken().Revoke(t.Context(), "ann", by("bob")); err != nil || ended.ID != next.ID || ended.Ended.IsZero() {
		t.Fatalf("%+v %v", ended, err)
	}
	becomes(t, r, nextSecret, ErrRevoked)
}
