package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestAStallDelaysWhatIsInFlight: latency counts from the send, so that one of a hundred has waited for the stall.
func TestAStallDelaysWhatIsInFlight(t *testing.T) {
	const stall = 200 * time.Millisecond
	j := job{callers: 1, batch: 1, caller: func(context.Context, int) (caller, error) {
		return caller{send: func(ctx context.Context, from, _ int, _ []answer) error {
			if from > 0 {
				return nil
			}
			return until(ctx, time.Now().Add(stall))
		}}, nil
	}}
	d, err := drive(t.Context(), j, 400, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if d.latency.Max < 199_000 || d.latency.P99 > d.latency.Max/2 || d.took < stall {
		t.Errorf("%+v in %s, want one operation that waited", d.latency, d.took)
	}
}

func TestARunEndsInTime(t *testing.T) {
	slow := func(ctx context.Context, _, _ int, _ []answer) error {
		return until(ctx, time.Now().Add(5*time.Millisecond))
	}
	j := job{callers: 2, batch: 1, caller: func(context.Context, int) (caller, error) { return caller{send: slow}, nil }}
	d, err := drive(t.Context(), j, 1_000_000, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if d.took < 45*time.Millisecond || d.took > 30*time.Second {
		t.Errorf("took %s", d.took)
	}
}

func TestErrorsEndARun(t *testing.T) {
	broke := errors.New("broke")
	j := job{callers: 4, batch: 2, caller: func(context.Context, int) (caller, error) {
		return caller{send: func(_ context.Context, from, _ int, _ []answer) error {
			if from == 10 {
				return broke
			}
			return nil
		}}, nil
	}}
	if _, err := drive(t.Context(), j, 100, time.Minute); !errors.Is(err, broke) || !strings.Contains(err.Error(), "operations 10 to 11") {
		t.Errorf("%v", err)
	}
	stream := job{stream: func(context.Context, int, func(answer)) error { return broke }}
	if _, err := drive(t.Context(), stream, 1, time.Minute); !errors.Is(err, broke) {
		t.Errorf("%v", err)
	}
	// Callbacks that never come are not waited for for ever.
	ctx, cancel := context.WithCancel(t.Context())
	silent := job{stream: func(context.Context, int, func(answer)) error { cancel(); return nil }}
	if _, err := drive(ctx, silent, 1, time.Minute); !errors.Is(err, errUnanswered) {
		t.Errorf("%v", err)
	}
}

func TestAStreamSendsEachOnce(t *testing.T) {
	var sent []int
	j := job{stream: func(_ context.Context, i int, done func(answer)) error {
		sent = append(sent, i)
		go done(answer{verdict: won, code: code(0, i)})
		return nil
	}}
	d, err := drive(t.Context(), j, 1000, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for i, at := range sent {
		if i != at {
			t.Fatalf("operation %d was sent as number %d", at, i)
		}
	}
	p := newPlan(workload{campaigns: 1}, "x", 1000, 1)
	if got, err := tallyOf(p, d.answers); err != nil || got.won != 1000 {
		t.Errorf("%+v, %v", got, err)
	}
}
