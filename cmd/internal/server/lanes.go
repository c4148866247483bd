package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/dial"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/scheduler"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// LeaseGroup is the group of leases by which servers share the lanes.
const LeaseGroup = "lane"

// lanes are all lanes of the log, also those that other servers own.
type lanes struct {
	s         *server
	js        jetstream.JetStream
	all       []*lane.Lane
	due       []atomic.Pointer[scheduler.Scheduler] // of each lane, nil if none runs here
	waits     []atomic.Pointer[string]              // last error of each lane's scheduler, nil if it never failed
	scheduler *scheduler.Metrics
	snapshots *snapstore.Store

	mu      sync.Mutex   // guards the fields below
	readAt  time.Time    // when holders were read
	holders lease.Status // owners of the lanes that this server does not own
}

// startLanes competes for the leases of all lanes of the log and runs the lanes whose leases it gets.
func (s *server) startLanes(ctx context.Context) error {
	if !s.opts.has(RoleLanes) {
		return nil
	}
	nc, err := s.connect(ctx, "lanes")
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ls := &lanes{s: s, js: js, due: make([]atomic.Pointer[scheduler.Scheduler], s.stream.Lanes), waits: make([]atomic.Pointer[string], s.stream.Lanes), scheduler: scheduler.NewMetrics(s.metrics.registry)}
	s.pressure = &pressure{processed: ls.processed, loading: ls.loading, bursting: ls.bursting, now: time.Now}
	if ls.snapshots, err = snapstore.New(ctx, js, snapstore.Options{Seal: s.stream.Seal, Busy: s.pressure.Busy, Logger: s.log}); err != nil {
		return err
	}
	mover := dial.NewMover(nc)
	manager, err := lease.New(js, LeaseGroup, s.stream.Lanes, s.id, lease.Options{Mover: mover, Logger: s.log})
	if err != nil {
		return err
	}
	metrics := lane.NewMetrics(s.metrics.registry)
	for n := range s.stream.Lanes {
		o := lane.Options{JetStream: js, Log: s.stream, Lane: n, Key: s.key, Snapshots: ls.snapshots, Metrics: metrics, Logger: s.log, Config: s.config, Now: s.clock.Now, Mover: mover,
			Contested: func(ctx context.Context) error { return manager.Confirm(ctx, n) },
		}
		if at, given := s.opts.Rebase[n]; given {
			o.Rebase = &at
		}
		ls.all = append(ls.all, lane.New(o))
	}
	for n := range s.opts.Rebase {
		if n >= s.stream.Lanes {
			return fmt.Errorf("--rebase %d: the log has lanes 0 to %d", n, s.stream.Lanes-1)
		}
	}
	s.group.start("lanes", func(ctx context.Context) error {
		if err := manager.Run(ctx, ls.runLane); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	s.health.add("lanes", true, ls.check)
	return nil
}

// loading is true if a lane of this server reads its snapshot and log.
func (ls *lanes) loading() bool {
	return slices.ContainsFunc(ls.all, func(l *lane.Lane) bool { return l.Status().State == lane.StateLoading })
}

// processed is how many commands this process has answered for all lanes, plus how many fired reminders it has published.
func (ls *lanes) processed() (sum uint64) {
	for n, l := range ls.all {
		sum += l.CommandsProcessed()
		if sched := ls.due[n].Load(); sched != nil {
			sum += sched.Published()
		}
	}
	return sum
}

// bursting is true if a scheduler of this server has a burst of reminders. It is safe for concurrent use and cheap.
func (ls *lanes) bursting() bool {
	for n := range ls.due {
		if sched := ls.due[n].Load(); sched != nil && sched.Bursting() {
			return true
		}
	}
	return false
}

// clientWithin is how long schedulers throttle themselves after a client's command.
const clientWithin = time.Second

// clientsActive is true if a lane of this server got a client's command within clientWithin. It is safe for concurrent
// use and cheap.
func (ls *lanes) clientsActive() bool {
	now := time.Now()
	return slices.ContainsFunc(ls.all, func(l *lane.Lane) bool { return now.Sub(l.LastClientCommand()) < clientWithin })
}

// runLane runs under a lane's lease: the lane and concurrently its scheduler. Claims do not depend on the scheduler.
func (ls *lanes) runLane(ctx context.Context, n int) error {
	var schedulers sync.WaitGroup
	defer schedulers.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if ls.s.opts.has(RoleScheduler) {
		schedulers.Go(func() { ls.schedule(ctx, n) })
	}
	logged := ""
	for {
		err := ls.all[n].Run(ctx)
		if !errors.Is(err, lane.ErrStopped) {
			cancel(err) // the scheduler need not save its state if it is lease.ErrLost
			return err  // the lease manager calls again, after a pause
		}
		// The log has the cause, and an operator must act. If the log becomes consistent, because it was restored or its
		// replicas caught up, the lane continues.
		if why := err.Error(); why != logged {
			logged = why
			ls.s.log.Error("lane stopped; other lanes continue; its log is read again every minute", "lane", n, "err", err)
		}
		if topology.Pause(ctx, stoppedPause) != nil {
			return nil
		}
	}
}

// stoppedPause is the interval between reads of the log of a stopped lane.
const stoppedPause = time.Minute

// schedule runs a lane's scheduler until ctx ends. After any error it starts another one with backoff, under the same
// lease; the lane continues.
func (ls *lanes) schedule(ctx context.Context, n int) {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 200*time.Millisecond, 15*time.Second
	logged := ""
	unread := "cannot read the run-time settings"
	ls.waits[n].Store(&unread)
	select {
	case <-ls.s.config.Ready(): // before that, paused reminders would fire
	case <-ctx.Done():
		return
	}
	ls.waits[n].Store(nil)
	for {
		begun := time.Now()
		sched := scheduler.New(ls.js, ls.s.stream.UUID, n, scheduler.Options{
			Seal: ls.s.stream.Seal, Format: ls.s.stream.Format, Snapshots: ls.snapshots, Metrics: ls.scheduler, Logger: ls.s.log, Dir: ls.s.dir.Path(), Config: ls.s.config, Busy: ls.clientsActive, Now: ls.s.clock.Now,
			Decides: func() bool { return ls.all[n].Status().State == lane.StateOwner },
		})
		ls.due[n].Store(sched)
		err := sched.Run(ctx)
		ls.due[n].Store(nil)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > time.Minute {
			pauses.Reset()
			logged = ""
		}
		if err == nil {
			err = errors.New("it ended without an error")
		}
		why := err.Error()
		ls.waits[n].Store(&why)
		if why != logged {
			logged = why
			ls.s.log.Error("scheduler failed; expiries and reminders wait, claims are served; retrying", "lane", n, "err", err)
		}
		if topology.Pause(ctx, pauses.NextBackOff()) != nil {
			return
		}
	}
}

// LaneReadiness is the detail of /readyz about a lane.
type LaneReadiness struct {
	Lane int `json:"lane"`
	lane.Status
	// Holder is the server that owns the lane, if it is another one.
	Holder string `json:"holder,omitempty"`
	// Backlog is its scheduler's due work, if that runs here and has caught up.
	Backlog *scheduler.Backlog `json:"backlog,omitempty"`
	// DueWaits is why expiries and reminders wait, if this server owns the lane and its scheduler has failed.
	DueWaits string `json:"due_waits,omitempty"`
}

// check is true if every lane has an owner.
func (ls *lanes) check() (ok bool, detail any) {
	ok = true
	list := make([]LaneReadiness, len(ls.all))
	for n, l := range ls.all {
		list[n] = LaneReadiness{Lane: n, Status: l.Status()}
		if sched := ls.due[n].Load(); sched != nil {
			if b, known := sched.Backlog(); known {
				list[n].Backlog = &b
			}
		}
		if why := ls.waits[n].Load(); why != nil && list[n].Backlog == nil && list[n].State == lane.StateOwner {
			list[n].DueWaits = *why
		}
		switch {
		case list[n].State == lane.StateOwner:
		case list[n].State == lane.StateIdle && list[n].Error == "":
			list[n].Holder = ls.holder(n)
			ok = ok && list[n].Holder != "" && list[n].Holder != ls.s.id
		default:
			ok = false
		}
	}
	return ok, map[string]any{"lanes": list}
}

// holdersFor is how long leases are cached, since health is read often.
const holdersFor = time.Second

// holder is the server that owns a lane, "" = none, or unknown.
func (ls *lanes) holder(n int) string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if time.Since(ls.readAt) > holdersFor {
		ctx, cancel := context.WithTimeout(context.Background(), holdersFor)
		defer cancel()
		status, err := lease.Inspect(ctx, ls.js, LeaseGroup, len(ls.all))
		if err != nil {
			ls.s.log.Debug("cannot read leases", "lane", strconv.Itoa(n), "err", err)
		}
		ls.readAt, ls.holders = time.Now(), status
	}
	if n < len(ls.holders.Holders) {
		return ls.holders.Holders[n].Server
	}
	return ""
}

const (
	// busyFrom is the rate of commands a second from which lanes are busy; below it the projector is not throttled.
	busyFrom = 5000
	// busyOver is the time over which the rate is measured.
	busyOver = 100 * time.Millisecond
)

// pressure measures whether lanes are busy, by the rate of commands and fired reminders. The projector throttles itself
// while they are: it shares the cores with them, and claims have priority.
type pressure struct {
	processed func() uint64
	bursting  func() bool // some scheduler has a burst of reminders to publish
	loading   func() bool // some lane reads its snapshot and log: claims wait for it
	now       func() time.Time

	mu   sync.Mutex // guards the fields below
	at   time.Time
	seen uint64
	busy bool
}

// Burst is true during a burst of reminders: work that can wait a second should not begin. It is safe for concurrent use
// and cheap.
func (p *pressure) Burst() bool { return p.bursting() }

// Busy is true if lanes were busy in the last measurement. It is safe for concurrent use and cheap.
func (p *pressure) Busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loading() {
		return true
	}
	now := p.now()
	elapsed := now.Sub(p.at)
	if elapsed < busyOver {
		return p.busy
	}
	seen := p.processed()
	// After a long pause between calls the rate is an average over that pause; the next call has a recent one.
	// A scheduler that was restarted counts from zero.
	p.busy = !p.at.IsZero() && seen >= p.seen && float64(seen-p.seen) >= busyFrom*elapsed.Seconds()
	p.at, p.seen = now, seen
	return p.busy
}
