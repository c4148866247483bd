package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// A key makes its burst at once and its rate in the long run; the answers have how much is left and when to come again; other
// keys, and the credentials, are not concerned.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := Rate{PerSecond: 4, Burst: 10}
		rates := NewRates(func() Rate { return limit }, nil)
		g := testGate()
		g.Rates = rates
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, problem := g.Enter(w, r, ""); problem != nil {
				problem.Write(w)
			}
		})
		ask := func(key string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if r.Header.Set("Authorization", "Bearer "+key); key == "" {
				r.SetBasicAuth("scrip", "secret")
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		want := func(key string, status int, left, after string) {
			t.Helper()
			w := ask(key)
			if w.Code != status || w.Header().Get("RateLimit") != left || w.Header().Get("Retry-After") != after {
				t.Errorf("%s: %d, RateLimit %s, Retry-After %q; want %d, %s, %q", key, w.Code, w.Header().Get("RateLimit"), w.Header().Get("Retry-After"), status, left, after)
			}
			policy := ""
			if left != "" {
				policy = `"key";q=10;w=3`
			}
			if got := w.Header().Get("RateLimit-Policy"); got != policy {
				t.Errorf("%s: RateLimit-Policy %s, want %s", key, got, policy)
			}
		}
		for i := range 10 {
			want("shop", 200, fmt.Sprintf(`"key";r=%d;t=%d`, 9-i, (i+4)/4), "")
		}
		for range 1000 {
			want("shop", 429, `"key";r=0;t=3`, "1")
		}
		want("page", 200, `"key";r=9;t=1`, "")
		want("", 200, "", "")
		time.Sleep(250 * time.Millisecond)
		want("shop", 200, `"key";r=0;t=3`, "")
		want("shop", 429, `"key";r=0;t=3`, "1")
		time.Sleep(time.Hour)
		want("shop", 200, `"key";r=9;t=1`, "")

		limit = Rate{PerSecond: 1} // a change: the burst is that of a second
		if w := ask("shop"); w.Code != 200 || w.Header().Get("RateLimit-Policy") != `"key";q=1;w=1` {
			t.Errorf("after a change: %d %v", w.Code, w.Header())
		}
		if w := ask("shop"); w.Code != 429 || w.Header().Get("Content-Type") != ProblemType {
			t.Errorf("after a change: %d %v", w.Code, w.Header())
		}
		limit = Rate{}
		for range 100 {
			want("shop", 200, "", "")
		}
		if w := ask("other"); w.Code != 401 || w.Header().Get("RateLimit") != "" {
			t.Errorf("an unknown key: %d %v", w.Code, w.Header())
		}
	})
}

// However many keys there are, few are remembered; one that has used its burst is forgotten last.
func TestRatesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rates := NewRates(func() Rate { return Rate{PerSecond: 1, Burst: 2} }, nil)
		rates.most = 100
		take := func(id string) bool { return rates.take(http.Header{}, access.Principal{ID: id}) == nil }
		burst := []bool{take("busy"), take("busy"), take("busy")}
		if !slices.Equal(burst, []bool{true, true, false}) {
			t.Fatalf("the burst of a key is not two: %v", burst)
		}
		allowed := 0
		for i := range 1000 {
			time.Sleep(100 * time.Millisecond)
			if !take(fmt.Sprint("k", i)) {
				t.Fatalf("key %d is refused its first request", i)
			}
			if take("busy") {
				allowed++
			}
			if len(rates.by) > 100 {
				t.Fatalf("%d keys are remembered", len(rates.by))
			}
		}
		if allowed < 90 || allowed > 100 {
			t.Errorf("a busy key made %d requests in 100 s, its rate is one a second", allowed)
		}
		for i := range 1000 { // all at one moment: no bucket is full
			take(fmt.Sprint("l", i))
		}
		if len(rates.by) > 100 {
			t.Errorf("%d keys are remembered", len(rates.by))
		}
	})
}

// A key with a rate of its own has that and not the setting's, over HTTP and NATS together, also after it was rotated; what it
// uses up is no other key's.
func TestRateOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rates := NewRates(func() Rate { return Rate{PerSecond: 1000} }, nil)
		key, next := access.Principal{ID: "k1", Rate: 3}, access.Principal{ID: "k2", First: "k1", Rate: 3}
		http := func(p access.Principal) bool { return rates.take(http.Header{}, p) == nil }
		nats := func(p access.Principal) bool { return rates.Take(p) == 0 }
		for i, allowed := range []bool{http(key), nats(key), nats(next), http(key), nats(key), http(next)} {
			if allowed != (i < 3) {
				t.Errorf("request %d is allowed: %v", i, allowed)
			}
		}
		for range 2000 {
			if !nats(access.Principal{ID: "k3"}) || !nats(access.Principal{}) {
				t.Fatal("a key without a rate is refused over NATS")
			}
		}
		time.Sleep(rates.Take(key)) // as in the refusal
		if !nats(next) || nats(key) {
			t.Error("after the wait there is not room for one")
		}
		key.Rate = 5 // a change is in force at the next request
		allowed := 0
		for range 100 {
			if nats(key) {
				allowed++
			}
		}
		if allowed != 5 {
			t.Errorf("%d requests at once with a rate of 5", allowed)
		}
		h := map[string][]string{}
		if p := rates.take(h, key); p == nil || p.Code != RateLimited || h["Ratelimit-Policy"][0] != `"key";q=5;w=1` {
			t.Errorf("%v %v", p, h)
		}
	})
}
