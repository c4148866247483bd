package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// health is a sender to an endpoint in memory, and the changes that it stores. While lost is set none is stored.
type health struct {
	*sender
	endpoint *endpoint
	clock    *streamtest.Clock
	lost     bool
	stored   []string
}

func newHealth(t *testing.T, s Config) *health {
	h := &health{endpoint: &endpoint{body: `{"failed":[1]}`}, clock: streamtest.NewClock()}
	h.sender = to(t, h.endpoint, s)
	h.sender.clock = h.clock
	h.record = func(_ context.Context, c Change) error {
		if h.lost {
			return errors.New("not stored")
		}
		h.stored = append(h.stored, c.What)
		return nil
	}
	return h
}

// after makes a request after a time, and checks which changes are stored by then.
func (h *health) after(t *testing.T, d time.Duration, code int, lost bool, want ...string) {
	t.Helper()
	h.clock.Move(d)
	h.endpoint.code = code
	h.lost = lost
	_ = h.push(t.Context(), []push.Line{one[0], one[0]}) // the changes show its result
	if !slices.Equal(h.stored, want) {
		t.Errorf("after %s and a response %d, lost=%t: %v, want %v", d, code, lost, h.stored, want)
	}
}

// A change of the health that was not stored is stored by a later request, and each once.
func TestHealthIsStoredByALaterRequest(t *testing.T) {
	h := newHealth(t, Config{})
	h.after(t, 0, 500, false)
	h.after(t, 2*time.Hour, 500, true)
	h.after(t, 0, 500, false, Failing)
	h.after(t, time.Hour, 500, false, Failing)
	h.after(t, 0, 200, true, Failing)
	h.after(t, 0, 200, false, Failing, Works)
	h.after(t, 0, 200, false, Failing, Works)
	for _, code := range []int{500, 410} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			h := newHealth(t, Config{})
			h.after(t, 0, 500, true)
			h.after(t, 6*24*time.Hour, code, true)
			h.after(t, 0, code, false, Disable)
			h.after(t, time.Hour, code, false, Disable)
		})
	}
}

// An endpoint that takes some events of each request works: that is no failure of five days.
func TestAPartOfARequestIsNoFailure(t *testing.T) {
	h := newHealth(t, Config{Batch: 2})
	for range 10 {
		h.after(t, 24*time.Hour, http.StatusMultiStatus, false)
	}
}
