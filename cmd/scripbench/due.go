package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Due is one job that time asks for, done by every system.
//
//	fill ── T is some seconds ahead ── settled? ──── T ──────> first one done ──────> all done
//	                                                 │ meters run, somebody watches     │ every one, once?
type Due struct {
	Job        string     `json:"job"` // expire or remind
	Says       string     `json:"says"`
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

// DueSystem is how one recipe did.
type DueSystem struct {
	Name   string `json:"name"`
	Recipe string `json:"recipe"`
	// N is how many it was given: fewer than all where it is slow. Its rate is what is compared.
	N int `json:"n"`
	// Extrapolated: it was watched for a while only, and All is how long it would take for all.
	Extrapolated bool     `json:"extrapolated,omitempty"`
	Runs         []DueRun `json:"runs"`
	Median       DueRun   `json:"median"`
	// Ratio is how many times as fast scrip was, by the medians; 0 = not known.
	Ratio float64 `json:"scrip_is_times,omitempty"`
}

// DueRun is one run of one system. Instants are seconds after the one at which all fell due.
type DueRun struct {
	Done int `json:"done"`
	// First and All are when the first and the last of them was done.
	First float64 `json:"first_s"`
	All   float64 `json:"all_s"`
	// Rate is Done by All.
	Rate float64 `json:"rate"`
	// Lateness of each reminder at the worker, in microseconds, clipped at two minutes.
	Lateness Latency `json:"lateness"`
	// CPU seconds of the server's processes, of scripbench with workers and clients, and of everything else, from the
	// instant until all was done. Memory is the peak of the server's processes then.
	ServerCPU float64 `json:"server_cpu_s"`
	ClientCPU float64 `json:"client_cpu_s"`
	OthersCPU float64 `json:"others_cpu_s"`
	Memory    int64   `json:"memory_bytes"`
	// Scrip is what is known of scrip only.
	Scrip *ScripDue `json:"scrip,omitempty"`
}

// ScripDue is what is known of scrip only.
type ScripDue struct {
	// Refused is when the first redeem, and Validated when the first query, was answered with "expired". Accepted is when
	// the last redeem that was still allowed had been sent: before 0.
	Refused   float64 `json:"first_refusal_s,omitempty"`
	Validated float64 `json:"first_validate_refused_s,omitempty"`
	Accepted  float64 `json:"last_redeem_sent_s,omitempty"`
	// Event is when the last event that says so was stored on the log; Line the last line on the reminder stream.
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

// dueJob is what a recipe is asked for.
type dueJob struct {
	n         int
	campaigns int
	// queues that reminders are spread over in Redis.
	queues int
	// claims a second beside scrip's reminders, 0 = none.
	claims float64
	// unread: nobody reads scrip's reminder streams before all is on them.
	unread bool
	// period of the job that marks 2,000 coupons each time.
	period time.Duration
	// grown is what scrip's log grew by in this round, for the limit: payloads of messages.
	grown *grown
}

// grown is what a log grew by.
type grown struct{ messages, lines, bytes int }

// dueRecipe is the best known way to do such a job with one system.
type dueRecipe struct {
	recipe
	// most it is given; 0 = all.
	most int
	// once says that it is not repeated: it is extrapolated anyway.
	once bool
	// run fills the system, waits for the instant and measures.
	run func(ctx context.Context, o options, st *stand, j dueJob) (DueRun, error)
}

// dueNamed finds recipes by name, all if none is named.
func dueNamed(all []dueRecipe, names []string) ([]dueRecipe, error) {
	if len(names) == 0 {
		return all, nil
	}
	var found []dueRecipe
	var known []string
	for _, r := range all {
		known = append(known, r.name)
		if slices.Contains(names, r.name) {
			found = append(found, r)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, usageError{fmt.Errorf("--systems: there is no %q; there are %s", name, strings.Join(known, ", "))}
		}
	}
	if found[0].name != subject && found[len(found)-1].name == "limit" {
		return nil, usageError{errors.New("--systems: limit publishes as many bytes as scrip's log grew by: name scrip, too")}
	}
	return found, nil
}

// bare are the recipes without what is special to jobs that time asks for.
func bare(list []dueRecipe) (recipes []recipe) {
	for _, r := range list {
		recipes = append(recipes, r.recipe)
	}
	return recipes
}

// doneOnce has a recipe run on its server and says how that is set.
type doneOnce func(ctx context.Context, rc dueRecipe, j dueJob) (m DueRun, settings string, err error)

// due has the job done by each system in turn, as often as asked for. Each has new servers and the machine to itself:
// ten million coupons of one would stand in the way of another.
func (o options) due(ctx context.Context, d durability, r *Due, j dueJob, list []dueRecipe) error {
	if err := newStand(d, o.scrip).missing(bare(list)); err != nil {
		return err
	}
	return o.dueBy(ctx, d, r, j, list, func(ctx context.Context, rc dueRecipe, j dueJob) (m DueRun, settings string, err error) {
		return o.dueOnce(ctx, d, rc, j)
	})
}

func (o options) dueBy(ctx context.Context, d durability, r *Due, j dueJob, list []dueRecipe, once doneOnce) error {
	r.Durability, r.N, r.Campaigns, r.Load = d, j.n, j.campaigns, loadAverage()
	for _, rc := range list {
		s := DueSystem{Name: rc.name, Recipe: rc.says, N: j.n, Extrapolated: rc.once}
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
			ours := j
			ours.n = s.N
			m, settings, err := once(ctx, rc, ours)
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
			fmt.Fprintf(o.progress, "%s %s %s, run %d of %d: %s %s, all after %s\n", r.Job, d, rc.name, run+1, o.runs, thousands(float64(m.Done)), r.Unit, secondsText(m.All))
		}
	}
	r.compare()
	return nil
}

// dueOnce starts the servers, has a recipe run and stops them.
func (o options) dueOnce(ctx context.Context, d durability, rc dueRecipe, j dueJob) (m DueRun, settings string, err error) {
	st := newStand(d, o.scrip)
	list := []recipe{rc.recipe}
	if err := st.missing(list); err != nil {
		return m, "", err
	}
	defer func() { err = errors.Join(err, st.down()) }()
	if err := st.up(ctx, o.base, list); err != nil {
		return m, "", err
	}
	sv := rc.server(st)
	m, err = rc.run(ctx, o, st, j)
	return m, sv.settings(), err
}

// compare takes medians and ratios. A rate is compared, so that a system that was given fewer is not called faster for
// it.
func (r *Due) compare() {
	var ours float64
	for i := range r.Systems {
		s := &r.Systems[i]
		s.Median = medianDue(s.Runs)
		if s.Name == subject {
			ours = s.Median.Rate
		}
	}
	for i := range r.Systems {
		s := &r.Systems[i]
		if s.Name != subject && ours > 0 && s.Median.Rate > 0 {
			s.Ratio = ours / s.Median.Rate
		}
	}
}

// medianDue takes the median of every number by itself.
func medianDue(runs []DueRun) DueRun {
	float := func(of func(DueRun) float64) float64 { return middleOf(runs, of) }
	whole := func(of func(DueRun) int64) int64 { return middleOf(runs, of) }
	latency := func(of func(DueRun) Latency) Latency {
		return Latency{
			P50:  whole(func(m DueRun) int64 { return of(m).P50 }),
			P99:  whole(func(m DueRun) int64 { return of(m).P99 }),
			P999: whole(func(m DueRun) int64 { return of(m).P999 }),
			Max:  whole(func(m DueRun) int64 { return of(m).Max }),
		}
	}
	m := DueRun{
		Done:      int(whole(func(m DueRun) int64 { return int64(m.Done) })),
		First:     float(func(m DueRun) float64 { return m.First }),
		All:       float(func(m DueRun) float64 { return m.All }),
		Rate:      float(func(m DueRun) float64 { return m.Rate }),
		Lateness:  latency(func(m DueRun) Latency { return m.Lateness }),
		ServerCPU: float(func(m DueRun) float64 { return m.ServerCPU }),
		ClientCPU: float(func(m DueRun) float64 { return m.ClientCPU }),
		OthersCPU: float(func(m DueRun) float64 { return m.OthersCPU }),
		Memory:    whole(func(m DueRun) int64 { return m.Memory }),
	}
	if runs[0].Scrip != nil {
		m.Scrip = &ScripDue{
			Refused:   float(func(m DueRun) float64 { return m.Scrip.Refused }),
			Validated: float(func(m DueRun) float64 { return m.Scrip.Validated }),
			Accepted:  float(func(m DueRun) float64 { return m.Scrip.Accepted }),
			Event:     float(func(m DueRun) float64 { return m.Scrip.Event }),
			Line:      float(func(m DueRun) float64 { return m.Scrip.Line }),
			Messages:  int(whole(func(m DueRun) int64 { return int64(m.Scrip.Messages) })),
			Lines:     int(whole(func(m DueRun) int64 { return int64(m.Scrip.Lines) })),
			Bytes:     whole(func(m DueRun) int64 { return m.Scrip.Bytes }),
			Rate:      runs[0].Scrip.Rate,
			Before:    latency(func(m DueRun) Latency { return m.Scrip.Before }),
			During:    latency(func(m DueRun) Latency { return m.Scrip.During }),
		}
	}
	return m
}

// neighbours is the part of the machine's CPU that other programs had during the runs.
func (r *Due) neighbours(cores int) float64 {
	var others, all float64
	for _, s := range r.Systems {
		for _, m := range s.Runs {
			others += m.OthersCPU
			if s.Extrapolated {
				all += float64(m.Done) / m.Rate * float64(cores)
			} else {
				all += m.All * float64(cores)
			}
		}
	}
	if all < 1 { // a moment says nothing, and CPU time is counted in hundredths of a second
		return 0
	}
	return others / all
}

// aimTries is how often an instant is moved that filling did not leave enough time before.
const aimTries = 4

// settled is how much time must be left between the end of filling and the instant.
const settled = 600 * time.Millisecond

// aimed has a system that has a clock of its own filled for an instant, on a whole second, that lies ahead by then. When
// filling takes longer than thought, it is done again for a later one; again says that it was filled before.
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
	return at, fmt.Errorf("filling up took longer than the %s it was given", lead)
}

// clock is what systems are told that have none of their own: they are filled for some instant far away, and when they
// are full it is made to lie a moment ahead.
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
	runtime.GC() // what was made while filling is not to be cleaned up by workers
	if err := until(ctx, at.Add(-shortly)); err != nil {
		return DueRun{}, err
	}
	watch := startMeter(sv.pid())
	m, err := work(ctx)
	server, own, others, memory := watch.stop()
	m.ServerCPU, m.ClientCPU, m.OthersCPU, m.Memory = server.Seconds(), own.Seconds(), others.Seconds(), memory
	return m, err
}

const (
	// shortly before the instant, meters and watchers begin.
	shortly = 500 * time.Millisecond
	// dueWithin is how long the slowest system may take.
	dueWithin = time.Hour
)
