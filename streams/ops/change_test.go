package ops

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// checkpoints are read tables whose checkpoint is a function of the time since the first look.
type checkpoints struct {
	Coupons
	at func(time.Duration) (uint64, bool)

	first time.Time
}

func (c *checkpoints) Checkpoint(context.Context, int) (uint64, bool, error) {
	if c.first.IsZero() {
		c.first = time.Now()
	}
	at, ok := c.at(time.Since(c.first))
	return at, ok, nil
}

// TestAChangeWaitsForTheTables: until they have what the log had, a minute at most. Then it is known how many messages they lack, or that
// this is not known, which is never 0. A stop ends the wait.
func TestAChangeWaitsForTheTables(t *testing.T) {
	after := func(d time.Duration, to uint64) func(time.Duration) (uint64, bool) {
		return func(since time.Duration) (uint64, bool) {
			if since < d {
				return 7, true
			}
			return to, true
		}
	}
	for _, test := range []struct {
		name string
		end  uint64
		at   func(time.Duration) (uint64, bool)
		stop time.Duration // 0 = never
		want string
		took time.Duration
	}{
		{"current", 10, after(0, 10), 0, "0", 0},
		{"further", 10, after(0, 12), 0, "0", 0},
		{"soon", 10, after(time.Second, 10), 0, "0", time.Second},
		{"late", 10, after(2*tablesWait, 10), 0, "3", tablesWait},
		{"slow", 10, after(tablesWait/2, 9), 0, "1", tablesWait},
		{"without a checkpoint", 10, func(time.Duration) (uint64, bool) { return 0, false }, 0, "unknown", tablesWait},
		{"an empty log", 0, func(time.Duration) (uint64, bool) { return 0, false }, 0, "0", 0},
		{"stopped", 10, after(2*tablesWait, 10), 1500 * time.Millisecond, "stopped", 1500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, stop := time.Now(), make(chan struct{})
			if test.stop > 0 {
				time.AfterFunc(test.stop, func() { close(stop) })
			}
			run := JobRun{Stop: stop, Report: func(p JobProgress) {
				if p.Phase != "waiting for the tables" || p.Total != int64(test.end) || p.Done >= p.Total {
					t.Errorf("%s: reports %+v", test.name, p)
				}
			}}
			behind, err := reaches(t.Context(), &checkpoints{at: test.at}, 0, test.end, &run)
			got := "unknown"
			switch {
			case errors.Is(err, errStopped):
				got = "stopped"
			case err != nil:
				t.Error(err)
			case behind != nil:
				got = fmt.Sprint(*behind)
			}
			if took := time.Since(began); got != test.want || took != test.took {
				t.Errorf("%s: behind %s after %s, want %s after %s", test.name, got, took, test.want, test.took)
			}
		})
	}
}

// TestAChangeWhoseLaneIsAway ends when its answers are late: it has failed and can go on, or was stopped meanwhile. It counts nothing.
func TestAChangeWhoseLaneIsAway(t *testing.T) {
	r := newJobRig(t)
	lanes := command.New(r.js.Conn(), command.Options{Count: 1})
	streamtest.Background(t, lanes.Run)
	stop := make(chan struct{})
	j := &change{Ops: &Ops{Lanes: lanes}, run: JobRun{ID: "coupons-a-b", Action: "coupons.void", By: "ann", Stop: stop}, wait: 100 * time.Millisecond}
	j.q.Campaign = "summer"
	const late = "no answer in 100ms from the lane of summer; "
	err := j.batch(t.Context(), []uint32{3, 4, 9})
	streamtest.Equal(t, "an answer that is late", fmt.Sprint(err, errors.Is(err, errStopped)), late+"send the same request again to go on false")
	close(stop)
	err = j.batch(t.Context(), []uint32{3, 4, 9})
	streamtest.Equal(t, "a stop meanwhile", fmt.Sprint(err, errors.Is(err, errStopped)), "stopped: "+late+"what became of coupons 3 to 9 is not known true")
	if j.is.Done+j.is.Repeated != 0 || j.is.After != 0 {
		t.Errorf("it counts %+v", j.is)
	}
}
