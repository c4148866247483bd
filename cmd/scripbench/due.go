package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

// dueWork is what a full system has to do.
type dueWork struct {
	at time.Time
	// work runs from shortly before the instant until all is done. judge, which may be nil, fails if one was done wrongly or
	// not at all. Both complete the run.
	work, judge func(ctx context.Context, m *report.Run) error
	// close, which may be nil, releases what fill made.
	close func()
}

// dueCommand completes the command of a job that is due at one instant. The recipes take turns, --runs times. Each run has
// new servers and the machine to itself: ten million coupons of one system would slow another.
//
//	fill ── T is some seconds ahead ── settled? ──── T ──── work ──> first one done ──────> all done ──> judge
//	                                                 │ meters and readers run                            each one, once?
func dueCommand(cmd *cobra.Command, about, unit string, n int, all []recipe) *cobra.Command {
	return measurement(cmd, n, all, func(ctx context.Context, o options, done func(report.Result) error) error {
		t := &report.Table{Head: o.head(cmd.Name(), o.n), About: about, Unit: unit, Due: true}
		for _, rc := range o.recipes {
			t.Systems = append(t.Systems, report.System{Name: rc.name, Recipe: rc.about})
		}
		for run := range o.runs {
			o.grown = &grown{}
			for i, rc := range o.recipes {
				err := o.with(ctx, []recipe{rc}, func(b *bench) error {
					m, err := o.dueOnce(ctx, b, rc)
					if settings := rc.server(b).settings(); !slices.Contains(t.Settings, settings) {
						t.Settings = append(t.Settings, settings)
					}
					t.Systems[i].Runs = append(t.Systems[i].Runs, m)
					o.printf("%s %s %s, run %d of %d: all after %s", t.Name, t.Durability, rc.name, run+1, o.runs, report.Seconds(m.Seconds))
					return err
				})
				if err != nil {
					return fmt.Errorf("%s, %s: %w", t.Name, rc.name, err)
				}
			}
		}
		report.Compare(t.Systems)
		return done(t)
	})
}

// dueOnce fills a system, and has it work and be judged.
func (o options) dueOnce(ctx context.Context, b *bench, rc recipe) (m report.Run, err error) {
	d, err := rc.fill(ctx, o, b)
	if d.close != nil {
		defer d.close()
	}
	if err != nil {
		return m, err
	}
	o.printf("%s is filled with %s", rc.name, report.Num(o.n))
	working, cancel := context.WithDeadline(ctx, d.at.Add(dueWithin))
	defer cancel()
	runtime.GC() // workers must not pay for garbage of the filling
	if err := until(working, d.at.Add(-shortly)); err != nil {
		return m, err
	}
	watch := process.StartMeter(rc.server(b).pids()...)
	err = d.work(working, &m)
	m.Spent = watch.Stop()
	if err == nil && d.judge != nil {
		err = d.judge(ctx, &m)
	}
	m.Done = o.n
	m.Rate = float64(m.Done) / m.Seconds
	return m, err
}

const (
	// aimTries is how often an instant is moved that filling did not leave enough time before.
	aimTries = 4
	// settled is how much time must be left between the end of filling and the instant.
	settled = 600 * time.Millisecond
	// shortly before the instant, meters and readers start.
	shortly = 500 * time.Millisecond
	// dueWithin is how long the slowest system may take.
	dueWithin = time.Hour
)

// aimed fills a system that has a clock of its own for an instant, on a whole second, that lies ahead after that. When
// filling takes too long, fill is called again for a later instant; again reports that the system was filled before.
func aimed(lead time.Duration, fill func(at time.Time, again bool) error) (at time.Time, err error) {
	for try := range aimTries {
		at = time.Now().Add(lead + settled).Truncate(time.Second).Add(time.Second)
		if err := fill(at, try > 0); err != nil {
			return at, err
		}
		if time.Until(at) >= settled {
			return at, nil
		}
		lead = 2*lead + time.Second
	}
	return at, fmt.Errorf("filling took longer than the %s it was given", lead)
}

// fillingOf is the time that filling n of them takes; if more is needed the instant is moved.
func fillingOf(n int) time.Duration { return time.Second + time.Duration(n)*30*time.Microsecond }

// clock is for systems that have none of their own: they are filled for an instant far away, and when they are full the
// clock starts a moment before it.
type clock struct{ meant, at time.Time }

// meantFor is the instant to fill for.
func meantFor() time.Time { return time.Now().Add(24 * time.Hour).Truncate(time.Second) }

func clockFor(meant time.Time) clock { return clock{meant: meant, at: time.Now().Add(settled)} }

func (c clock) now() time.Time { return c.meant.Add(time.Since(c.at)) }

// seconds is now as a score of a sorted set.
func (c clock) seconds() float64 { return float64(c.now().UnixMicro()) / 1e6 }

// ledger records which customers were reached, and when. Workers do nothing else.
type ledger struct {
	n   int
	at  time.Time
	lat *report.Latencies

	mu                             sync.Mutex // guards what follows
	seen                           []bool
	reached, twice, unknown, early int
	first, last                    time.Duration // after the instant
}

func newLedger(n int) *ledger {
	return &ledger{n: n, seen: make([]bool, n), lat: report.NewLatencies()}
}

// reach records customers, by their ids, who were reached then.
func (l *ledger) reach(then time.Time, ids ...string) {
	late := then.Sub(l.at)
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.reached
	for _, id := range ids {
		switch i := numberOf(id); {
		case i < 0 || i >= l.n:
			l.unknown++
		case l.seen[i]:
			l.twice++
		default:
			l.seen[i] = true
			l.reached++
		}
	}
	if late < 0 {
		l.early += len(ids)
	}
	if fresh := l.reached - before; fresh > 0 {
		l.lat.Record(late, fresh)
		if before == 0 {
			l.first = late
		}
		l.first, l.last = min(l.first, late), max(l.last, late)
	}
}

// wait until all were reached. It gives up after patience without another one.
func (l *ledger) wait(ctx context.Context, _ *report.Run) error {
	before, since := 0, l.at
	return process.Poll(ctx, nil, ledgerEvery, func() error {
		l.mu.Lock()
		now := l.reached
		l.mu.Unlock()
		if now == l.n {
			return nil
		}
		if now != before {
			before, since = now, time.Now()
		}
		if time.Since(since) > patience {
			return fmt.Errorf("%d of %d were reached, and no more for %s", now, l.n, patience)
		}
		return fmt.Errorf("%w: %d of %d were reached", process.ErrWaiting, now, l.n)
	})
}

// ledgerEvery is how often wait checks.
const ledgerEvery = 5 * time.Millisecond

// judge fails if a customer was reached early, twice, or not at all. It is called after the last reach.
func (l *ledger) judge(_ context.Context, m *report.Run) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reached != l.n || l.twice+l.unknown+l.early > 0 {
		return fmt.Errorf("%d of %d were reached, %d more than once, %d early, and %d unknown", l.reached, l.n, l.twice, l.early, l.unknown)
	}
	m.First, m.Seconds, m.Latency = l.first.Seconds(), l.last.Seconds(), l.lat.Result()
	return nil
}

// numberOf is the number at the end of a customer id, with or without something before it; -1 for anything else.
func numberOf(id string) int {
	_, digits, _ := strings.Cut(id, customerPrefix)
	n, err := strconv.ParseUint(digits, 10, 40)
	if err != nil {
		return -1
	}
	return int(n)
}
