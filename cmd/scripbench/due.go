package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Due is one job that is due at one instant, done by every system.
//
//	fill ── T is some seconds ahead ── settled? ──── T ──────> first one done ──────> all done
//	                                                 │ meters and readers run           │ each one, once?
type Due struct {
	Job        string     `json:"job"` // expire or remind
	About      string     `json:"says"`
	Unit       string     `json:"unit"`
	Durability durability `json:"durability"`
	N          int        `json:"n"`
	// Campaigns that the reminders are spread over.
	Campaigns int         `json:"campaigns"`
	Settings  []string    `json:"settings"`
	Systems   []DueSystem `json:"systems"`
	// Load is the machine's load average before the first run.
	Load string `json:"load"`
}

// DueSystem is the result of one recipe.
type DueSystem struct {
	Name   string `json:"name"`
	Recipe string `json:"recipe"`
	// N is how many it was given: fewer than all where it is slow. Rates are compared.
	N int `json:"n"`
	// Extrapolated: it was watched for a while only, and All is how long it would take for all.
	Extrapolated bool     `json:"extrapolated,omitempty"`
	Runs         []DueRun `json:"runs"`
	Median       DueRun   `json:"median"`
	// Ratio is how many times as fast scrip was, by the medians; 0 = not known.
	Ratio float64 `json:"scrip_is_times,omitempty"`
}

// DueRun is one run of one system. Instants are seconds after the due instant.
type DueRun struct {
	Done int `json:"done"`
	// First and All are when the first and the last of them was done.
	First float64 `json:"first_s"`
	All   float64 `json:"all_s"`
	// Rate is Done by All.
	Rate float64 `json:"rate"`
	// Lateness of each reminder at the worker, in microseconds, clipped at two minutes.
	Lateness Latency `json:"lateness"`
	// From the due instant until all was done.
	spent
	// Scrip is nil for other systems.
	Scrip *ScripDue `json:"scrip,omitempty"`
}

// ScripDue is measured of scrip only.
type ScripDue struct {
	// Refused is when the first redeem, and Validated when the first query, was answered with "expired". Accepted is when
	// the last redeem that succeeded had been sent: before 0.
	Refused   float64 `json:"first_refusal_s,omitempty"`
	Validated float64 `json:"first_validate_refused_s,omitempty"`
	Accepted  float64 `json:"last_redeem_sent_s,omitempty"`
	// Event is when the last of the announcing events was stored on the log; Line the last line on the reminder stream.
	Event float64 `json:"event_s"`
	Line  float64 `json:"line_s,omitempty"`
	// Messages, lines and bytes (of whole messages) that this is on the log.
	Messages int   `json:"messages"`
	Lines    int   `json:"lines"`
	Bytes    int64 `json:"bytes"`
	// Claims beside: how many a second, and their latency before the instant and from it until all was done.
	Rate   float64 `json:"claims_rate,omitempty"`
	Before Latency `json:"claims_before"`
	During Latency `json:"claims_during"`
}

// dueJob is the job of a recipe.
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
type grown struct{ messages, lines, bytes int }

// dueRecipe is the best known way to do such a job with one system.
type dueRecipe struct {
	recipe
	// most it is given; 0 = all.
	most int
	// once: it has one run, and its result is extrapolated.
	once bool
	// run fills the system, waits for the instant and measures.
	run func(ctx context.Context, o options, b *bench, j dueJob) (DueRun, error)
}

// dueNamed finds recipes by name, all if none is named.
func dueNamed(all []dueRecipe, names []string) ([]dueRecipe, error) {
	found, err := named(all, func(r dueRecipe) string { return r.name }, names, systemsFlag)
	if err == nil && found[0].name != subject && found[len(found)-1].name == "limit" {
		err = usageError{errors.New("--systems: limit publishes as many bytes as scrip's log grew by: name scrip, too")}
	}
	return found, err
}

// base is the recipe without what is special to due jobs.
func base(r dueRecipe) recipe { return r.recipe }

// doneOnce runs a recipe on its server and returns the server's settings, too.
type doneOnce func(ctx context.Context, rc dueRecipe, j dueJob) (m DueRun, settings string, err error)

// due runs the recipes in turn, o.runs times. Each run has new servers and the machine to itself: ten million coupons of
// one system would slow another.
func (o options) due(ctx context.Context, d durability, r *Due, j dueJob, list []dueRecipe) error {
	if err := newBench(d, o.scrip).missing(each(list, base)); err != nil {
		return err
	}
	return o.dueBy(ctx, d, r, j, list, func(ctx context.Context, rc dueRecipe, j dueJob) (m DueRun, settings string, err error) {
		err = o.with(ctx, d, []recipe{rc.recipe}, func(b *bench) (err error) {
			m, err = rc.run(ctx, o, b, j)
			settings = rc.server(b).settings()
			return err
		})
		return m, settings, err
	})
}

func (o options) dueBy(ctx context.Context, d durability, r *Due, j dueJob, list []dueRecipe, once doneOnce) error {
	r.Durability, r.N, r.Campaigns, r.Load = d, j.n, j.campaigns, loadAverage()
	for _, rc := range list {
		s := DueSystem{Name: rc.name, Recipe: rc.about, N: j.n, Extrapolated: rc.once}
		if rc.most > 0 {
			s.N = min(s.N, rc.most)
		}
		r.Systems = append(r.Systems, s)
	}
	for run := range o.runs {
		j.grown = &grown{}
		for i, rc := range list {
			s := &r.Systems[i]
			if rc.once && run > 0 {
				continue
			}
			part := j
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
			o.printf("%s %s %s, run %d of %d: %s %s, all after %s", r.Job, d, rc.name, run+1, o.runs, num(m.Done), r.Unit, secondsText(m.All))
		}
	}
	var ours float64
	for i := range r.Systems {
		s := &r.Systems[i]
		s.Median = median(s.Runs)
		if s.Name == subject {
			ours = s.Median.Rate
		}
	}
	for i := range r.Systems {
		s := &r.Systems[i]
		s.Ratio = ratio(s.Name, ours, s.Median.Rate)
	}
	return nil
}

// others is the CPU time that other programs had during the runs, and all that the machine had, in seconds.
func (r *Due) others() (others, all float64) {
	for _, s := range r.Systems {
		for _, m := range s.Runs {
			others += m.OthersCPU
			all += float64(m.Done) / m.Rate * float64(runtime.NumCPU()) // All may be extrapolated
		}
	}
	return others, all
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
func measured(ctx context.Context, sv server, at time.Time, work func(context.Context) (DueRun, error)) (DueRun, error) {
	ctx, cancel := context.WithDeadline(ctx, at.Add(dueWithin))
	defer cancel()
	runtime.GC() // workers must not pay for garbage of the filling
	if err := until(ctx, at.Add(-shortly)); err != nil {
		return DueRun{}, err
	}
	watch := startMeter(sv.pids()...)
	m, err := work(ctx)
	m.spent = watch.stop()
	return m, err
}

// measuredBy is measured for workers that report to a ledger.
func (l *ledger) measuredBy(ctx context.Context, sv server, work func(context.Context) error) (DueRun, error) {
	usage, err := measured(ctx, sv, l.at, func(ctx context.Context) (DueRun, error) { return DueRun{}, work(ctx) })
	if err != nil {
		return usage, err
	}
	m, err := l.result()
	m.spent = usage.spent
	return m, err
}

// limitPending is how many bare messages are in flight at most.
const limitPending = 64

// publishGrown publishes as many bytes as scrip's log grew by in this round, in as many messages, to a bare stream, as
// durable as scrip's: no program that stores its results on JetStream is faster.
func publishGrown(ctx context.Context, _ options, b *bench, j dueJob) (m DueRun, err error) {
	s, g := b.limit, j.grown
	if g.messages == 0 {
		return m, errors.New("scrip's log did not grow")
	}
	const name = "LIMIT_DUE"
	stream, err := s.bareStream(ctx, name)
	if err != nil {
		return m, err
	}
	defer func() { _ = s.js.DeleteStream(context.WithoutCancel(ctx), name) }() // the directory is removed anyway
	js, err := jetstream.New(s.nc, jetstream.WithPublishAsyncMaxPending(limitPending))
	if err != nil {
		return m, err
	}
	payload := bytes.Repeat([]byte{'x'}, max(1, g.bytes/g.messages))
	at := time.Now().Add(settled)
	m, err = measured(ctx, s, at, func(ctx context.Context) (m DueRun, err error) {
		if err := until(ctx, at); err != nil {
			return m, err
		}
		acks := make([]jetstream.PubAckFuture, g.messages)
		for i := range acks {
			if acks[i], err = js.PublishAsync(name, payload, jetstream.WithStallWait(patience)); err != nil {
				return m, err
			}
		}
		for i, ack := range acks {
			select {
			case <-ack.Ok():
			case err := <-ack.Err():
				return m, err
			case <-ctx.Done():
				return m, context.Cause(ctx)
			}
			m.All = time.Since(at).Seconds()
			if i == 0 {
				m.First = m.All
			}
		}
		m.Done = j.n
		return m, nil
	})
	if err != nil {
		return m, err
	}
	info, err := stream.Info(ctx)
	if err == nil && info.State.Msgs != uint64(g.messages) {
		err = fmt.Errorf("%d messages are on the stream, published were %d", info.State.Msgs, g.messages)
	}
	return m, err
}
