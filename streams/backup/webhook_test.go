package backup_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

// endpoints is an HTTP server of others: each path is an endpoint.
type endpoints struct {
	*httptest.Server

	mu     sync.Mutex
	closed map[string]int // paths that respond with another status than 200
	got    map[string]int // how often each customer's claim was delivered, by path and customer
	secret map[string]signature.Secret
	forged int

	changed testsignal.Signal[struct{}] // of those who deliver to them
}

// until waits for a fact that was true before a delivery ended, or that Stats show.
func (e *endpoints) until(t *testing.T, what string, fact func() bool) {
	t.Helper()
	t.Logf("waiting until %s", what)
	if !fact() {
		e.changed.WaitFor(t, func(struct{}) bool { return fact() })
	}
}

func newEndpoints(t *testing.T) *endpoints {
	e := &endpoints{closed: map[string]int{}, got: map[string]int{}, secret: map[string]signature.Secret{}}
	e.changed.Watch()
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		defer e.mu.Unlock()
		if status := e.closed[r.URL.Path]; status != 0 {
			w.WriteHeader(status)
			return
		}
		if _, err := signature.Verify(r.Header, body, time.Now(), 1000*time.Hour, e.secret[r.URL.Path]); err != nil {
			e.forged++
		}
		for _, part := range strings.Split(string(body), `"customer_id":"`)[1:] {
			customer, _, _ := strings.Cut(part, `"`)
			e.got[r.URL.Path+" "+customer]++
		}
	}))
	t.Cleanup(e.Close)
	return e
}

// answer sets the status that a path responds with, 0 = 200.
func (e *endpoints) answer(path string, status int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed[path] = status
}

// delivered returns how often the claims of customers arrived, by path and customer, since the last forget.
func (e *endpoints) delivered() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.got)
}

func (e *endpoints) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.got)
}

// deliver runs a server's part that delivers to webhooks, until stop is called or the test ends.
func (r *rig) deliver(to *endpoints, clock wall.Clock) (run *webhook.Runner, stop func()) {
	r.t.Helper()
	run = webhook.New(webhook.Options{
		JetStream: r.js, Log: r.log, CodeKey: testKey, Server: "one", Clock: clock, Logger: streamtest.Logger(r.t),
		Guard: &webhook.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}},
	})
	run.Changed = to.changed
	return run, streamtest.Background(r.t, run.Run)
}

func webhooks(js jetstream.JetStream, log topology.Log) *webhook.Store {
	return webhook.Open(js, webhook.NewKey(testKey, log.UUID), registry.Options{})
}

var ann = access.Author{Principal: access.Local("ann")}

// some are the customers of claims, from and to on both lanes.
func some(from, to int) (all []string) {
	for n := range lanes {
		for i := from; i < to; i++ {
			all = append(all, fmt.Sprintf("l%d-%d", n, i))
		}
	}
	return all
}

// TestWebhooksComeBack: a restored server delivers to the endpoints, signed with their secrets, what was not delivered: what
// was after the position, what waited for its next try, and the dead letters when they are retried. What was delivered
// before the backup is not delivered again. What is delivered while the backup is taken may be, and nothing is lost.
func TestWebhooksComeBack(t *testing.T) {
	e := newEndpoints(t)
	s := streamtest.Start(t, streamtest.Lanes(lanes))
	r := newRig(t, s.JetStream(t), 1)
	r.work(nil)
	store := webhooks(r.js, r.log)
	id := map[string]string{}
	for path, hours := range map[string]int{"/shop": 168, "/old": 1, "/live": 168, "/moved": 168} {
		made, secret, err := store.Create(t.Context(), ann, webhook.Config{URL: e.URL + path, Types: []string{"coupon.claimed"}, MaxAge: wire.Period(hours) * wire.Period(time.Hour), Batch: 100})
		streamtest.Must(t, err)
		id[path], e.secret[path] = made.ID, secret
	}
	clock := streamtest.NewClock()
	run, stop := r.deliver(e, clock)
	held := map[string]string{}
	for n := range lanes {
		r.request(n, create(campaign(n)))
		r.claims(n, 0, 50, held)
	}
	has := func(path string, want []string) func() bool {
		return func() bool {
			clock.Move(time.Minute) // for pauses
			got := e.delivered()
			return !slices.ContainsFunc(want, func(c string) bool { return got[path+" "+c] == 0 })
		}
	}
	for path := range id {
		e.until(t, "the first claims are delivered to "+path, has(path, some(0, 50)))
	}
	turn := func(path, what string) {
		t.Helper()
		if _, err := store.Make(t.Context(), ann, webhook.Change{Webhook: id[path], What: what}, 0); err != nil {
			t.Fatal(err)
		}
	}
	turn("/moved", webhook.Pause)
	e.until(t, "it is paused", func() bool { return len(run.Stats()) == 3 })
	for path := range id {
		e.answer(path, http.StatusServiceUnavailable)
	}
	for n := range lanes {
		r.claims(n, 50, 80, held)
		r.claims(n, 80, 100, held)
	}
	for _, path := range []string{"/shop", "/old", "/live"} {
		e.until(t, path+" is away", func() bool { return run.Stats()[id[path]].Away })
	}
	late := clock.Now().Add(100 * time.Hour) // too old for /old alone
	e.until(t, "events are given up", func() bool {
		if clock.Now().Before(late) {
			clock.Move(10 * time.Hour)
		}
		return run.Stats()[id["/old"]].Dead == 100
	})
	stop()
	r.stop()
	at, err := push.Positions(t.Context(), r.js)
	if err != nil || len(at) != 4*lanes || slices.ContainsFunc(at, func(p push.Position) bool { return p.Delivered != 50 }) {
		t.Errorf("recorded %+v, %v", at, err)
	}
	e.forget()

	// While the copies are made, one endpoint works again and gets all, and the messages of another one move from after its
	// position to those that wait: between the first copy of what is kept of deliveries and the next one.
	turn("/shop", webhook.Pause)
	e.answer("/live", 0)
	e.answer("/moved", http.StatusInternalServerError)
	dir := t.TempDir() + "/backup"
	var once sync.Once
	whileCopied := func(stream string) error {
		if stream == topology.PushStream || stream == topology.PushWaitStream {
			once.Do(func() {
				turn("/moved", webhook.Resume)
				run, stop := r.deliver(e, clock)
				e.until(t, "the rest is delivered", has("/live", some(50, 100)))
				e.until(t, "each message has failed once", func() bool { return run.Stats()[id["/moved"]].FailedTries >= 2*lanes })
				stop()
			})
		}
		return nil
	}
	m, err := backup.CreateHooked(t.Context(), r.js, dir, backup.CreateOptions{Key: testKey, Logger: streamtest.Logger(t)}, whileCopied)
	if err != nil || !m.Webhooks() {
		t.Fatalf("%+v, %v", m, err)
	}
	s.Shutdown()
	during := e.delivered()
	e.forget()
	for path := range id {
		e.answer(path, 0)
	}

	to := streamtest.Start(t, streamtest.Lanes(lanes))
	restore(t, dir, to.JetStream(t), 0)
	r = newRig(t, to.JetStream(t), 1)
	r.work(nil)
	store = webhooks(r.js, r.log)
	turn("/shop", webhook.Resume)
	clock = streamtest.NewClock()
	r.deliver(e, clock)
	for n := range lanes {
		r.claims(n, 100, 110, held)
	}
	for _, path := range []string{"/shop", "/moved"} {
		e.until(t, "what was left, and what is new, is delivered to "+path, has(path, some(50, 110)))
	}
	e.until(t, "what is new is delivered", has("/live", some(100, 110)))
	letters, _, err := store.Letters(t.Context(), id["/old"], 0, 1000)
	if err != nil || len(letters) == 0 {
		t.Fatalf("%+v, %v", letters, err)
	}
	turn("/old", webhook.Retry)
	e.until(t, "dead letters are delivered", has("/old", some(50, 110)))
	now := e.delivered()
	for to, times := range now {
		path, customer, _ := strings.Cut(to, " ")
		// What moved during the backup is in both copies, so it may come twice.
		if slices.Contains(some(0, 50), customer) || times != 1 && path != "/moved" {
			t.Errorf("%s: %s is delivered %d times after the restore", path, customer, times)
		}
	}
	for _, customer := range some(50, 100) {
		if during["/live "+customer]+now["/live "+customer] == 0 {
			t.Errorf("/live: %s is lost", customer)
		}
	}
	if e.forged > 0 {
		t.Errorf("%d requests are not signed with the secret of their endpoint", e.forged)
	}
	all, err := store.List(t.Context())
	if err != nil || len(all) != 4 || slices.ContainsFunc(all, func(e webhook.Endpoint) bool { return e.By != ann.Name || e.State != webhook.Active }) {
		t.Errorf("%+v, %v", all, err)
	}

	// Beside the log that it is of, a copy delivers nothing.
	beside := streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t)
	streamtest.Must(t, open(t, dir).Restore(t.Context(), beside, backup.RestoreOptions{WithoutWebhooks: true, Logger: streamtest.Logger(t)}))
	if have := streams(t, beside); slices.ContainsFunc(have, func(s string) bool { return strings.Contains(s, "WEBHOOKS") || strings.Contains(s, "PUSH") }) {
		t.Errorf("%v", have)
	}
	r = newRig(t, beside, 1)
	r.work(nil)
	r.repeats(subset(held, some(0, 100)))
}

// subset are the claims of some customers.
func subset(held map[string]string, customers []string) map[string]string {
	of := map[string]string{}
	for _, c := range customers {
		of["claim-"+c] = held["claim-"+c]
	}
	return of
}
