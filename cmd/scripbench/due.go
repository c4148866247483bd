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

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

// A due job is done by every system at one instant.
//
//	fill ── T is some seconds ahead ── settled? ──── T ──────> first one done ──────> all done
//	                                                 │ meters and readers run           │ each one, once?
type dueJob struct {
	n         int
	campaigns int
	// queues that reminders are spread over in Redis.
	queues int
	// claims a second beside scrip's reminders, 0 = none.
	claims float64
	// unread: scrip's reminder streams are read only after all is on them.
	unread bool
	// period of the job that marks 2,000 coupons each time.
	period time.Duration
	// grown is the growth of scrip's log in this round, for the limit: payloads of messages.
	grown *grown
}

// grown is the growth of a log.
type grown struct{ messages, bytes int }

// dueRecipe is the best known way to do such a job with one system.
type dueRecipe struct {
	recipe
	// most it is given; 0 = all.
	most int
	// once: it has one run, and its result is extrapolated.
	once bool
	// run fills the system, waits for the instant and measures.
	run func(ctx context.Context, o options, b *bench, j dueJob) (report.DueRun, error)
}

// dueCommand runs the recipes that --systems names in turn, --runs times. Each run has new servers and the machine to
// itself: ten million coupons of one system would slow another.
func (f *flags) dueCommand(ctx context.Context, d report.Durability, r *report.Due, j dueJob, all []dueRecipe) (report.Result, error) {
	list, err := named(all, func(r dueRecipe) string { return r.name }, f.systems, systemsFlag)
	if err != nil {
		return nil, err
	}
	if list[0].name != report.Subject && list[len(list)-1].name == "limit" {
		return nil, cli.Usagef("--systems: limit publishes as many bytes as scrip's log grew by: name scrip, too")
	}
	if err := f.newBench(d).missing(report.Each(list, dueRecipe.base)); err != nil {
		return nil, err
	}
	r.Durability = d
	return r, f.due(ctx, r, j, list, func(ctx context.Context, rc dueRecipe, j dueJob) (m report.DueRun, settings string, err error) {
		err = f.with(ctx, d, []recipe{rc.recipe}, func(b *bench) (err error) {
			m, err = rc.run(ctx, f.options, b, j)
			settings = rc.server(b).settings()
			return err
		})
		return m, settings, err
	})
}

// dueOnce runs a recipe on its server and returns the server's settings, too.
type dueOnce func(ctx context.Context, rc dueRecipe, j dueJob) (m report.DueRun, settings string, err error)

func (o options) due(ctx context.Context, r *report.Due, j dueJob, list []dueRecipe, once dueOnce) error {
	r.N, r.Campaigns, r.Load = j.n, j.campaigns, process.Load()
	for _, rc := range list {
		s := report.System[report.DueRun]{Name: rc.name, Recipe: rc.about, N: j.n, Extrapolated: rc.once}
		if rc.most > 0 {
			s.N = min(s.N, rc.most)
		}
		r.Systems = append(r.Systems, s)
	}
	for run := range o.runs {
		j.grown = &grown{}
		for i, rc := range list {
			s, part := &r.Systems[i], j
			if rc.once && run > 0 {
				continue
			}
			part.n = s.N
			m, settings, err := once(ctx, rc, part)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", r.Job, rc.name, err)
			}
			if !slices.Contains(r.Settings, settings) {
				r.Settings = append(r.Settings, settings)
			}
			m.Rate = float64(m.Done) / m.All
			if s.Extrapolated {
				m.All = float64(j.n) / m.Rate
			}
			s.Runs = append(s.Runs, m)
			o.printf("%s %s %s, run %d of %d: %s %s, all after %s", r.Job, r.Durability, rc.name, run+1, o.runs, report.Num(m.Done), r.Unit, report.Seconds(m.All))
		}
	}
	report.Compare(r.Systems, true)
	return nil
}

const (
	// aimTries is how often an instant is moved that filling did not leave enough time before.
	aimTries = 4
	// settled is how much time must be left between the end of filling and the instant.
	settled = 600 * time.Millisecond
	// shortly before the instant, meters and readers begin.
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

// measured runs work, which returns when all is done, with meters on a server from shortly before the instant.
func measured(ctx context.Context, sv server, at time.Time, work func(context.Context) (report.DueRun, error)) (report.DueRun, error) {
	ctx, cancel := context.WithDeadline(ctx, at.Add(dueWithin))
	defer cancel()
	runtime.GC() // workers must not pay for garbage of the filling
	if err := process.Until(ctx, at.Add(-shortly)); err != nil {
		return report.DueRun{}, err
	}
	watch := process.StartMeter(sv.pids()...)
	m, err := work(ctx)
	m.Spent = watch.Stop()
	return m, err
}

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
func (l *ledger) wait(ctx context.Context) error {
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

// result of a run. It fails if a customer was reached early, twice, or not at all. It is called after the last reach.
func (l *ledger) result() (m report.DueRun, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reached != l.n || l.twice+l.unknown+l.early > 0 {
		return m, fmt.Errorf("%d of %d were reached, %d more than once, %d early, and %d unknown", l.reached, l.n, l.twice, l.early, l.unknown)
	}
	m.Done, m.First, m.All, m.Lateness = l.n, l.first.Seconds(), l.last.Seconds(), l.lat.Result()
	return m, nil
}

// measured is measured for workers that report to the ledger; work waits for them.
func (l *ledger) measured(ctx context.Context, sv server, work func(context.Context) error) (m report.DueRun, err error) {
	spent, err := measured(ctx, sv, l.at, func(ctx context.Context) (m report.DueRun, err error) { return m, work(ctx) })
	if err == nil {
		m, err = l.result()
	}
	m.Spent = spent.Spent
	return m, err
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
