package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/scheduler"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
)

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
	js, err := s.jetStream(ctx, "lanes")
	if err != nil {
		return err
	}
	ls := &lanes{s: s, js: js, due: make([]atomic.Pointer[scheduler.Scheduler], s.stream.Lanes), waits: make([]atomic.Pointer[string], s.stream.Lanes), scheduler: scheduler.NewMetrics(s.metrics.registry)}
	s.load = load.NewMeter(s.stream.Lanes)
	if ls.snapshots, err = snapstore.New(ctx, js, snapstore.Options{Seal: s.stream.Seal, Load: s.load, Logger: s.log}); err != nil {
		return err
	}
	mover := natsx.NewMover(js.Conn())
	manager, err := lease.New(js, status.LeaseGroup, s.stream.Lanes, s.id, lease.Options{Mover: mover, Logger: s.log})
	if err != nil {
		return err
	}
	metrics := lane.NewMetrics(s.metrics.registry)
	for n := range s.stream.Lanes {
		o := lane.Options{JetStream: js, Log: s.stream, Lane: n, Key: s.key, Snapshots: ls.snapshots, Metrics: metrics, Logger: s.log, Config: s.config, Clock: s.clock, Mover: mover, Load: s.load, WrongCodes: s.keys.registry.Wrong.InLog,
			Contested: func(ctx context.Context) error { return manager.Confirm(ctx, n) },
		}
		if s.trace != nil {
			o.Trace = s.trace.Step
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
		if natsx.Pause(ctx, stoppedPause) != nil {
			return nil
		}
	}
}

// stoppedPause is the interval between reads of the log of a stopped lane.
const stoppedPause = time.Minute

// loadFirst bounds for how long a scheduler waits until its lane is loaded: both read snapshots, and claims go first.
const loadFirst, loadLook = time.Minute, 20 * time.Millisecond

func (ls *lanes) afterLoading(ctx context.Context, n int) {
	for end := time.Now().Add(loadFirst); time.Now().Before(end); {
		switch ls.all[n].Status().State {
		case lane.StateIdle, lane.StateLoading:
			if natsx.Pause(ctx, loadLook) != nil {
				return
			}
		default:
			return
		}
	}
}

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
	ls.afterLoading(ctx, n)
	for {
		started := time.Now()
		sched := scheduler.New(ls.js, ls.s.stream, n, scheduler.Options{
			Snapshots: ls.snapshots, Metrics: ls.scheduler, Logger: ls.s.log, Dir: ls.s.dir.Path(), Config: ls.s.config, Load: ls.s.load, Clock: ls.s.clock,
			Decides: func() bool { return ls.all[n].Status().State == lane.StateOwner },
		})
		ls.due[n].Store(sched)
		err := sched.Run(ctx)
		ls.due[n].Store(nil)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > time.Minute {
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
		if natsx.Pause(ctx, pauses.NextBackOff()) != nil {
			return
		}
	}
}

// check is true if every lane has an owner.
func (ls *lanes) check() (ok bool, detail any) {
	ok = true
	list := make([]status.LaneReadiness, len(ls.all))
	for n, l := range ls.all {
		list[n] = status.LaneReadiness{Lane: n, Status: l.Status(), Outcomes: l.Outcomes()}
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
		leases, err := lease.Inspect(ctx, ls.js, status.LeaseGroup, len(ls.all))
		if err != nil {
			ls.s.log.Debug("cannot read leases", "lane", strconv.Itoa(n), "err", err)
		}
		ls.readAt, ls.holders = time.Now(), leases
	}
	if n < len(ls.holders.Holders) {
		return ls.holders.Holders[n].Server
	}
	return ""
}
