package webhook

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// A rehearsal makes the requests of the tries that fail, under one id, and delivers then; with as many failures as tries the event is
// a dead letter that a retry delivers. Without an event it reports that.
func TestRehearsal(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Config{Schedule: []wire.Period{second, 5 * hour}, Types: []string{"coupon.*", "reminder.due"}})
	run := r.runner(r.js, func(o *Options) { o.rehearsal = 20 * time.Millisecond })
	r.make(t, Change{Webhook: e.ID, What: Pause}) // it does not depend on the state
	streamtest.Background(t, run.Run)
	rehearse := func(fail int) (result string) {
		t.Helper()
		r.make(t, Change{Webhook: e.ID, What: Rehearse, Fail: fail})
		r.until(t, "the rehearsal has a result", func() bool {
			e, err := r.store.Show(within(t), e.ID)
			result = e.LastRehearsal
			return err == nil && !e.Rehearsing()
		})
		return result
	}
	if got := rehearse(1); !strings.Contains(got, "none of the last 1,000 messages") {
		t.Error(got)
	}
	r.event(t, claimed("ann"), paused)
	if got := rehearse(1); got != "try 1 of 3: the answer is ignored; try 2 of 3 after 1s: delivered" {
		t.Error(got)
	}
	r.answers(unavailable)
	if got := rehearse(1); strings.Count(got, "503") != 3 || !strings.Contains(got, "; try 3 of 3 after 5h: ") || !strings.Contains(got, "; dead letter ") {
		t.Error(got)
	}
	r.answers(nil)
	ids := map[string]int{}
	for _, got := range r.received() {
		ids[got.header.Get("webhook-id")]++
	}
	if len(ids) != 1 || len(r.received()) != 5 {
		t.Errorf("requests by id: %v", ids)
	}
	r.make(t, Change{Webhook: e.ID, What: Retry})
	r.until(t, "the dead letter is delivered", func() bool {
		e, err := r.store.Show(within(t), e.ID)
		return err == nil && e.LastRetry == "1 delivered, 0 not"
	})
}

// With the setting an answer 4xx is the last try; 409, and the answers that a webhook away gives, are not.
func TestGiveUpOn4xx(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Config{GiveUp4xx: true})
	status := make(chan int, 3)
	r.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(<-status) })
	clock := streamtest.NewClock()
	run := r.runner(r.js, func(o *Options) { o.Clock = clock })
	r.serve(t, run, e)
	for _, s := range []int{http.StatusConflict, http.StatusTooManyRequests, http.StatusNotFound} {
		status <- s
	}
	r.event(t, claimed("ann"))
	r.until(t, "the event is given up", func() bool { clock.Move(time.Minute); return run.Stats()[e.ID].Dead == 1 })
	if all, _, err := r.store.Letters(within(t), e.ID, 0, 10); err != nil || len(all) != 1 || !strings.Contains(all[0].Error, "404") || len(r.received()) != 3 {
		t.Errorf("%+v, %v after %d requests", all, err, len(r.received()))
	}
}

// A URL that the server may not or cannot reach is refused, and nothing is stored.
func TestReach(t *testing.T) {
	r := newRig(t)
	g := &Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	r.store.Reach = g.Reach
	e, _ := r.create(t, Config{})
	r.endpoint.Close()
	for url, want := range map[string]string{"https://127.0.0.1:1/": "refused", r.endpoint.URL + "/b": "refused", "https://10.0.0.1/": "is inside", "https://no-such-host.invalid/": "cannot be reached"} {
		_, _, err := r.store.Create(within(t), ann, Config{URL: url, Types: []string{"coupon.*"}})
		if err == nil || !strings.Contains(err.Error(), "url: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
		if _, err := r.store.Set(within(t), ann, e.ID, 0, func(c Config) Config { c.URL = url; return c }); err == nil {
			t.Errorf("%s: the change is made", url)
		}
	}
	if _, err := r.store.Set(within(t), ann, e.ID, 0, func(c Config) Config { c.Rate = 7; return c }); err != nil {
		t.Errorf("a change of another setting: %v", err)
	}
	if all, err := r.store.List(within(t)); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}
