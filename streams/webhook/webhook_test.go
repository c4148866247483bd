package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

// signed computes the signature from the specification's text, without package signature.
func signed(secret signature.Secret, r received) string {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret.Text(), "whsec_"))
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", r.header.Get("webhook-id"), r.header.Get("webhook-timestamp"), r.body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// A server with an endpoint: an event that passes is delivered once, signed, without code; a rotated secret signs beside the
// new one; a paused endpoint gets nothing; a replay gets it again under the same id; a deleted one leaves nothing.
func TestJourney(t *testing.T) {
	r := newRig(t)
	e, secret := r.create(t, Config{})
	run := r.runner(r.js, nil)
	if got := run.States(); got != nil {
		t.Errorf("before it has read them: %v", got)
	}
	streamtest.Background(t, run.Run)
	r.event(t, paused, claimed("ann"))
	r.until(t, "ann's claim is delivered", func() bool { return len(r.received()) == 1 })
	first := r.received()[0]
	if first.header.Get("webhook-signature") != signed(secret, first) {
		t.Errorf("signature %q, want %q", first.header.Get("webhook-signature"), signed(secret, first))
	}
	want := `{"type":"coupon.claimed","timestamp":"2027-01-15T08:00:00Z","data":{"campaign":"summer","customer_id":"ann","id":"c-1","n":1}}`
	if first.body != want || !strings.HasPrefix(first.header.Get("webhook-id"), "evt_") || first.header.Get("Content-Type") != "application/json" {
		t.Errorf("%v\n%s\nwant %s", first.header, first.body, want)
	}

	_, newer, err := r.store.Rotate(within(t), ann, e.ID)
	streamtest.Must(t, err)
	inForce := func(what string, fact func() bool) {
		t.Helper()
		answered := time.Now()
		r.until(t, what, fact)
		if took := time.Since(answered); took > time.Second {
			t.Errorf("%s: %s after the change was answered, promised is a second", what, took)
		}
	}
	version := func() uint64 { all, _, _ := run.state(); return all[0].Version }
	inForce("the rotation is read", func() bool { return version() == 2 })
	r.event(t, claimed("bob"))
	r.until(t, "bob's claim is delivered with both", func() bool {
		got := r.received()
		last := got[len(got)-1]
		return strings.Contains(last.body, "bob") && last.header.Get("webhook-signature") == signed(newer, last)+" "+signed(secret, last)
	})

	act := func(c Change) {
		t.Helper()
		c.Webhook = e.ID
		r.make(t, c)
	}
	act(Change{What: Test})
	r.until(t, "the test has a result", func() bool { e, err := r.store.Show(within(t), e.ID); return err == nil && e.LastTest == "delivered" })
	act(Change{What: Pause})
	inForce("it is paused", func() bool { return len(run.Stats()) == 0 })
	if got, want := run.States(), (map[State]int{Active: 0, Paused: 1, Disabled: 0}); !maps.Equal(got, want) {
		t.Errorf("the states are %v, want %v", got, want)
	}
	r.event(t, claimed("cid"))
	before := len(r.received())
	act(Change{What: Resume})
	r.until(t, "cid's claim is delivered", func() bool { got := r.received(); return strings.Contains(got[len(got)-1].body, "cid") })
	if n := len(r.received()); n != before+1 {
		t.Errorf("%d requests, want %d", n, before+1)
	}
	act(Change{What: Replay, From: e.Created})
	r.until(t, "all are delivered again", func() bool { return len(r.received()) == before+4 })
	again := false
	for _, got := range r.received()[before+1:] {
		again = again || got.header.Get("webhook-id") == first.header.Get("webhook-id") && got.body == first.body
	}
	if !again {
		t.Error("the replay has another id")
	}
	act(Change{What: Delete})
	r.until(t, "nothing is left of it", func() bool {
		all, err := push.Positions(within(t), r.js)
		return err == nil && len(all) == 0
	})
}

// Several events of a message are one request. A 207 leaves those that it names, which come again under an id of their own; a batch of
// several campaigns that fails as a whole is retried as a request of each. Events keep the ids of the first try, and requests have ids
// of their own.
func TestBatch(t *testing.T) {
	bob := claimed("bob")
	for name, tc := range map[string]struct {
		status int
		body   string
		events []string
		want   string // how many events each request has
	}{
		"a part fails": {http.StatusMultiStatus, `{"failed":[1]}`, []string{claimed("ann"), paused, bob}, "[3 1]"},
		"all fail":     {http.StatusInternalServerError, "", []string{claimed("ann"), strings.Replace(bob, "summer", "winter", 1)}, "[2 1 1]"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			e, _ := r.create(t, Config{Batch: 100, Codes: true, Types: []string{"coupon.claimed", "campaign.*"}})
			var calls atomic.Int32
			r.answers(func(w http.ResponseWriter, _ *http.Request) {
				if calls.Add(1) == 1 {
					w.WriteHeader(tc.status)
					_, _ = io.WriteString(w, tc.body)
				}
			})
			clock := streamtest.NewClock()
			run := r.runner(r.js, func(o *Options) { o.Clock = clock })
			r.serve(t, run, e)
			r.event(t, tc.events...)
			all := uint64(len(tc.events))
			r.until(t, "all are delivered", func() bool { clock.Move(time.Minute); return uint64(run.Stats()[e.ID].Pushed) == all })
			var sizes []int
			var first, later []string
			requests := map[string]bool{}
			for _, got := range r.received() {
				var body struct {
					Type string
					Data struct {
						Events []struct {
							ID   string
							Data struct{ Code string }
						}
					}
				}
				if err := json.Unmarshal([]byte(got.body), &body); err != nil || body.Type != "events" || body.Data.Events[0].ID == "" {
					t.Fatalf("%v: %s", err, got.body)
				}
				for _, event := range body.Data.Events {
					if later = append(later, event.ID); len(sizes) == 0 {
						first = append(first, event.ID)
					}
				}
				if len(sizes) == 0 && body.Data.Events[0].Data.Code != "AAAABBBBCCCC" {
					t.Errorf("without the code: %s", got.body)
				}
				sizes, requests[got.header.Get("webhook-id")] = append(sizes, len(body.Data.Events)), true
			}
			later = later[len(first):]
			if name == "a part fails" {
				first = first[1:2]
			}
			slices.Sort(first)
			slices.Sort(later)
			if fmt.Sprint(sizes) != tc.want || len(requests) != len(sizes) || !slices.Equal(first, later) {
				t.Errorf("requests of %v events under %v; %v, then %v", sizes, requests, first, later)
			}
		})
	}
}

// A server that dies between the delivery and its acknowledgement: another one delivers the same event under the same id.
func TestKilledAfterTheDelivery(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Config{})
	js := r.server.JetStream(t)
	var once sync.Once
	r.answers(func(http.ResponseWriter, *http.Request) { once.Do(js.Conn().Close) })
	short := func(o *Options) { o.ackWait = time.Second }
	stop := r.serve(t, r.runner(js, short), e)
	r.event(t, claimed("ann"))
	r.until(t, "it is delivered", func() bool { return len(r.received()) == 1 })
	stop()
	r.serve(t, r.runner(r.js, short), e)
	r.until(t, "it is delivered again", func() bool { return len(r.received()) == 2 })
	got := r.received()
	if got[0].header.Get("webhook-id") != got[1].header.Get("webhook-id") || got[0].body != got[1].body {
		t.Errorf("%v\n%v", got[0], got[1])
	}
}

// 410 disables the endpoint. The audit stream has it, once. Five days of failures do, too, see TestHealthIsStoredByALaterRequest.
func TestDisabled(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Config{})
	r.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	stop := r.serve(t, r.runner(r.js, nil), e)
	r.event(t, claimed("ann"))
	r.until(t, "it is disabled", func() bool {
		e, err := r.store.Show(within(t), e.ID)
		return err == nil && e.State == Disabled && e.Reason != ""
	})
	stop()
	all, _, err := r.store.history.Audit.Read(within(t), audit.Filter{Actor: "scrip serve"}, 100)
	if err != nil || len(all) != 1 || all[0].Kind != audit.Webhooks || all[0].Action != Disable || all[0].About != e.ID {
		t.Errorf("%+v, %v", all, err)
	}
}
