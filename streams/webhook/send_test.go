package webhook

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// endpoint is a round tripper in memory: it takes a time for each response, whose code is 200 by default.
type endpoint struct {
	takes time.Duration
	code  int
	body  string

	mu        sync.Mutex
	now, most int
	at        []time.Time
}

func (e *endpoint) RoundTrip(req *http.Request) (*http.Response, error) {
	e.mu.Lock()
	e.now++
	e.most, e.at = max(e.most, e.now), append(e.at, time.Now())
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.now--
	}()
	select {
	case <-time.After(e.takes):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	code := cmp.Or(e.code, http.StatusOK)
	return &http.Response{Status: http.StatusText(code), StatusCode: code, Body: io.NopCloser(strings.NewReader(e.body)), Request: req}, nil
}

// to is a sender to an endpoint in memory.
func to(t *testing.T, e *endpoint, s Config) *sender {
	t.Helper()
	s.URL, s.Types = "https://shop.example/", []string{"coupon.*"}
	s, err := s.Validate()
	streamtest.Must(t, err)
	return newSender(Endpoint{ID: "x", Config: s}, nil, e, wall.Machine, func(context.Context, Change) error { return nil })
}

// An endpoint never has more requests at once than its concurrency, nor more a second than its rate, of which the first tenth
// of a second's may come at once.
func TestRateAndConcurrency(t *testing.T) {
	for name, tc := range map[string]struct {
		settings Config
		takes    time.Duration
		calls    int
		most     int
		last     time.Duration // when the last request starts
	}{
		"concurrency": {Config{Concurrency: 2, Rate: 1000}, time.Second, 8, 2, 3 * time.Second},
		"rate":        {Config{Concurrency: 64, Rate: 20}, 0, 8, 2, 300 * time.Millisecond}, // two at once, then one each 50 ms
		"both":        {Config{Concurrency: 1, Rate: 1}, 3 * time.Second, 4, 1, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &endpoint{takes: tc.takes}
				s := to(t, e, tc.settings)
				started := time.Now()
				var calls sync.WaitGroup
				for range tc.calls {
					calls.Go(func() {
						if err := s.push(t.Context(), one); err != nil {
							t.Error(err)
						}
					})
				}
				calls.Wait()
				if len(e.at) != tc.calls || e.most > tc.most {
					t.Errorf("%d requests, %d at once", len(e.at), e.most)
				}
				if last := e.at[len(e.at)-1].Sub(started).Round(time.Millisecond); last != tc.last {
					t.Errorf("the last request started after %s, want %s", last, tc.last)
				}
			})
		})
	}
}

// An endpoint that does not respond in time fails, and is not away: that may be because of these events.
func TestASlowEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		err := to(t, &endpoint{takes: time.Hour}, Config{}).push(t.Context(), one)
		if took := time.Since(started); err == nil || !errors.Is(err, context.DeadlineExceeded) || took != requestTimeout {
			t.Errorf("%v after %s", err, took)
		}
	})
}
