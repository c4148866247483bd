package push

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errRefused = errors.New("refused")

// batchOf is one item of each campaign.
func batchOf(campaigns ...string) (all []item) {
	for i, c := range campaigns {
		all = append(all, item{Reminder: Reminder{Key: fmt.Sprint(i), Campaign: c}, number: i + 1})
	}
	return all
}

// What a function may return or do, and what follows from it.
func TestCalls(t *testing.T) {
	for name, tc := range map[string]struct {
		err        error
		panics     bool
		left       int
		gateway    gatewayState
		refused    bool
		retryAfter time.Duration
	}{
		"delivered":          {gateway: answered},
		"an error":           {err: errRefused, left: 3, gateway: failed},
		"a panic":            {panics: true, left: 3, gateway: failed},
		"refused":            {err: fmt.Errorf("wrapped: %w", &Refused{Err: errRefused}), left: 3, gateway: answered, refused: true},
		"partial":            {err: &Partial{Failed: []int{2, 0, 2}, Err: errRefused}, left: 2, gateway: answered, refused: true},
		"odd partial":        {err: &Partial{Failed: []int{7}, Err: errRefused}, left: 3, gateway: answered, refused: true},
		"mute partial":       {err: fmt.Errorf("wrapped: %w", &Partial{Err: errRefused}), left: 3, gateway: answered, refused: true},
		"away":               {err: &Away{Err: errRefused}, left: 3, gateway: away},
		"away for two hours": {err: &Away{Err: errRefused, RetryAfter: 2 * time.Hour}, left: 3, gateway: away, retryAfter: 2 * time.Hour},
		"away for two days":  {err: &Away{Err: errRefused, RetryAfter: 48 * time.Hour}, left: 3, gateway: away, retryAfter: 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			c := &caller{batch: 500, timeout: time.Second, push: func(context.Context, []item) error {
				if tc.panics {
					panic("no gateway")
				}
				return tc.err
			}}
			r := c.try(t.Context(), batchOf("a", "a", "a"), false)
			if len(r.left) != tc.left || r.gateway != tc.gateway || r.refused != tc.refused || r.retryAfter != tc.retryAfter || (r.cause == nil) != (tc.left == 0) {
				t.Errorf("%+v", r)
			}
			if tc.panics && !strings.Contains(r.cause.Error(), "the function panicked: no gateway") {
				t.Error(r.cause)
			}
		})
	}
}

// A batch that fails does not keep the others from being delivered, unless the gateway is away; divided by campaign, a batch is
// of one.
func TestBatches(t *testing.T) {
	all := batchOf("good", "bad", "good", "bad", "other")
	for name, tc := range map[string]struct {
		err   error
		split bool
		calls string
		left  string
		mixed bool
	}{
		"as it is": {err: errRefused, calls: "good bad|good bad|other", left: "0 1 2 3", mixed: true},
		"divided":  {err: errRefused, split: true, calls: "good good|bad bad|other", left: "1 3"},
		"away":     {err: &Away{Err: errRefused}, split: true, calls: "good good|bad bad", left: "1 3 4"},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			c := &caller{batch: 2, timeout: time.Second, push: func(_ context.Context, batch []item) error {
				var names []string
				for _, it := range batch {
					names = append(names, it.Campaign)
				}
				if calls = append(calls, strings.Join(names, " ")); slices.Contains(names, "bad") {
					return tc.err
				}
				return nil
			}}
			r := c.try(t.Context(), all, tc.split)
			var left []string
			for _, it := range r.left {
				left = append(left, it.Key)
			}
			if got := strings.Join(calls, "|"); got != tc.calls || strings.Join(left, " ") != tc.left || r.mixed != tc.mixed {
				t.Errorf("calls %s, left %v, mixed %t", got, left, r.mixed)
			}
		})
	}
}

// A function that heeds its context has failed at its timeout; one that hangs is given up shortly after, and counts until it
// returns; one that ends its goroutine has failed.
func TestAFunctionThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 30 * time.Second
		release := make(chan struct{})
		for name, tc := range map[string]struct {
			push  func(context.Context, []item) error
			took  time.Duration
			want  error
			text  string
			hangs int64
		}{
			"heeds":   {func(ctx context.Context, _ []item) error { <-ctx.Done(); return ctx.Err() }, timeout, context.DeadlineExceeded, "not done within 30s", 0},
			"is late": {func(ctx context.Context, _ []item) error { <-ctx.Done(); <-time.After(returnGrace / 2); return nil }, timeout + returnGrace/2, nil, "", 0},
			"hangs":   {func(context.Context, []item) error { <-release; return nil }, timeout + returnGrace, errHangs, "not done within 30s", 1},
			"ends":    {func(context.Context, []item) error { runtime.Goexit(); return nil }, 0, errGoexit, "", 0},
		} {
			c := &caller{push: tc.push, batch: 500, timeout: timeout}
			started := time.Now()
			err := c.call(t.Context(), batchOf("a"))
			if took := time.Since(started); took != tc.took || !errors.Is(err, tc.want) || tc.text != "" && !strings.Contains(err.Error(), tc.text) || c.hung.Load() != tc.hangs {
				t.Errorf("%s: %v after %s, %d hang", name, err, took, c.hung.Load())
			}
			if tc.hangs > 0 {
				close(release)
				if synctest.Wait(); c.hung.Load() != 0 {
					t.Errorf("%s: it counts as hanging after it returned", name)
				}
			}
		}
		// At the end of Run a call is cut off: that is no failed try.
		ctx, cancel := context.WithCancel(t.Context())
		c := &caller{batch: 500, timeout: timeout, push: func(ctx context.Context, _ []item) error { cancel(); <-ctx.Done(); return ctx.Err() }}
		if r := c.try(ctx, batchOf("a"), false); !errors.Is(r.cause, errEnding) || r.gateway != untried || len(r.left) != 1 {
			t.Errorf("at the end: %+v", r)
		}
	})
}

// A campaign whose calls only fail is set aside, until one is delivered.
func TestSuspects(t *testing.T) {
	var s suspects
	all := batchOf("bad", "good")
	for range suspectAfter {
		if now, later, fresh := s.sort(all); len(now) != 2 || len(later) != 0 || !fresh {
			t.Errorf("now %v, later %v, fresh %t", now, later, fresh)
		}
		s.count("bad", false)
	}
	if now, later, fresh := s.sort(all); len(now) != 1 || len(later) != 1 || later[0].Campaign != "bad" || !fresh {
		t.Errorf("now %v, later %v, fresh %t", now, later, fresh)
	}
	if _, _, fresh := s.sort(all[:1]); fresh {
		t.Error("a campaign that failed is fresh")
	}
	for i := range suspectsMost + 10 { // which is more than are remembered
		s.count(fmt.Sprint(i), false)
	}
	if len(s.failed) > suspectsMost {
		t.Errorf("%d campaigns are remembered", len(s.failed))
	}
	s.count("bad", true)
	if now, _, _ := s.sort(all); len(now) != 2 {
		t.Error("a campaign that was delivered is set aside")
	}
}
