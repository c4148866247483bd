package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// stalling is a caller that answers at once, but for the first answer.
type stalling struct {
	stall time.Duration
	sent  *atomic.Int64
}

func (s stalling) send(ctx context.Context, from, to int, answers []answer) error {
	if s.sent.Add(1) == 1 {
		if err := until(ctx, time.Now().Add(s.stall)); err != nil {
			return err
		}
	}
	for i := from; i < to; i++ {
		answers[i] = answer{verdict: won, code: code(0, i)}
	}
	return nil
}

func stallingJob(stall time.Duration, batch int) job {
	sent := new(atomic.Int64)
	return job{callers: 1, batch: batch, caller: func(context.Context, int) (caller, error) { return caller{send: stalling{stall, sent}.send}, nil }}
}

// TestAStallDelaysAllThatWereDue: with 1,000 operations a second and a stall of 200 ms at the start, operation
// i of the first 200 has to wait 200 - i ms. Measured from when they were sent, as in a closed loop, only one has.
func TestAStallDelaysAllThatWereDue(t *testing.T) {
	const stall = 200 * time.Millisecond
	open, err := drive(t.Context(), stallingJob(stall, 1), pace{n: 400, limit: time.Minute, rate: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if open.latency.P99 < 190_000 || open.latency.P50 > open.latency.P99 {
		t.Errorf("open loop: %+v, want a P99 near the stall of 200 ms", open.latency)
	}
	if open.took < 399*time.Millisecond {
		t.Errorf("400 operations at 1,000 a second took %s", open.took)
	}
	closed, err := drive(t.Context(), stallingJob(stall, 1), pace{n: 400, limit: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if closed.latency.Max < 199_000 || closed.latency.P99 > closed.latency.Max/2 {
		t.Errorf("closed loop: %+v, want one operation that waited", closed.latency)
	}
}

func TestBatchesOfAnOpenLoopTakeWhatIsDue(t *testing.T) {
	// While a batch takes its 20 ms others become due; they go as one.
	var sizes []int
	j := job{callers: 1, batch: 1000, caller: func(context.Context, int) (caller, error) {
		return caller{send: func(ctx context.Context, from, to int, answers []answer) error {
			sizes = append(sizes, to-from)
			return until(ctx, time.Now().Add(20*time.Millisecond))
		}}, nil
	}}
	if _, err := drive(t.Context(), j, pace{n: 100, limit: time.Minute, rate: 1000}); err != nil {
		t.Fatal(err)
	}
	if len(sizes) > 10 {
		t.Errorf("batches of %v", sizes)
	}
}

func TestARunEndsInTime(t *testing.T) {
	slow := func(ctx context.Context, _, _ int, _ []answer) error {
		return until(ctx, time.Now().Add(5*time.Millisecond))
	}
	j := job{callers: 2, batch: 1, caller: func(context.Context, int) (caller, error) { return caller{send: slow}, nil }}
	d, err := drive(t.Context(), j, pace{n: 1_000_000, limit: 50 * time.Millisecond})
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
	if _, err := drive(t.Context(), j, pace{n: 100, limit: time.Minute}); !errors.Is(err, broke) || !strings.Contains(err.Error(), "operations 10 to 11") {
		t.Errorf("%v", err)
	}
	stream := job{stream: func(context.Context, int, func(answer)) error { return broke }}
	if _, err := drive(t.Context(), stream, pace{n: 1, limit: time.Minute}); !errors.Is(err, broke) {
		t.Errorf("%v", err)
	}
	// Callbacks that never come are not waited for for ever.
	ctx, cancel := context.WithCancel(t.Context())
	silent := job{stream: func(context.Context, int, func(answer)) error { cancel(); return nil }}
	if _, err := drive(ctx, silent, pace{n: 1, limit: time.Minute}); !errors.Is(err, errUnanswered) {
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
	d, err := drive(t.Context(), j, pace{n: 1000, limit: time.Minute})
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
