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

// LeaseGroup is the group of leases under which servers share the lanes.
const LeaseGroup = "lane"

// lanes are all lanes of the log, those that others work included.
type lanes struct {
	s         *server
	js        jetstream.JetStream
	all       []*lane.Lane
	due       []atomic.Pointer[scheduler.Scheduler] // of each lane, nil where none runs here
	waits     []atomic.Pointer[string]              // why the scheduler of each lane did not work last, nil if it never failed
	scheduler *scheduler.Metrics
	snapshots *snapstore.Store

	mu      sync.Mutex   // guards what follows
	looked  time.Time    // when holders were read
	holders lease.Status // who works the lanes that we do not
}

// startLanes competes for all lanes of the log and works those it gets.
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
	s.pressure = &pressure{answered: ls.answered, loading: ls.loading, rushing: ls.rushing, now: time.Now}
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
		if at, asked := s.opts.Rebase[n]; asked {
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
		if err := manager.Run(ctx, ls.work); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	s.health.add("lanes", true, ls.check)
	return nil
}

// loading says whether a lane of ours is on its way.
func (ls *lanes) loading() bool {
	return slices.ContainsFunc(ls.all, func(l *lane.Lane) bool { return l.Status().State == lane.StateLoading })
}

// answered is how many commands this process has answered, for all lanes, and how many customers it has told of reminders.
func (ls *lanes) answered() (sum uint64) {
	for n, l := range ls.all {
		sum += l.CommandsProcessed()
		if sched := ls.due[n].Load(); sched != nil {
			sum += sched.Published()
		}
	}
	return sum
}

// rushing says whether a scheduler of ours has very many to remind just now. It may be called by many goroutines, and often.
func (ls *lanes) rushing() bool {
	for n := range ls.due {
		if sched := ls.due[n].Load(); sched != nil && sched.Bursting() {
			return true
		}
	}
	return false
}

// askedWithin is for how long after commands of people the schedulers leave them the machine.
const askedWithin = time.Second

// asked says whether people asked something of our lanes a moment ago. It may be called by many goroutines, and often.
func (ls *lanes) asked() bool {
	now := time.Now()
	return slices.ContainsFunc(ls.all, func(l *lane.Lane) bool { return now.Sub(l.LastClientCommand()) < askedWithin })
}

// work is what is done under a lane's lease: the lane and beside it its scheduler, without which claims go on.
func (ls *lanes) work(ctx context.Context, n int) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if ls.s.opts.has(RoleScheduler) {
		beside.Go(func() { ls.schedule(ctx, n) })
	}
	logged := ""
	for {
		err := ls.all[n].Run(ctx)
		if !errors.Is(err, lane.ErrStopped) {
			cancel(err) // the scheduler need not save its state if it is lease.ErrLost
			return err  // the lease manager calls again, after a pause
		}
		// What stopped it is in the log. An operator reads this and acts; should the log agree with itself again, because it
		// was put back or its replicas caught up, the lane goes on.
		if why := err.Error(); why != logged {
			logged = why
			ls.s.log.Error("lane stopped; the other lanes go on, and its log is read again every minute", "lane", n, "err", err)
		}
		if topology.Pause(ctx, stoppedPause) != nil {
			return nil
		}
	}
}

// stoppedPause is after what time the log of a stopped lane is read again.
const stoppedPause = time.Minute

// schedule runs a lane's scheduler until ctx ends: whatever error ends it, another one is tried after a growing pause, under
// the same lease, and the lane goes on meanwhile.
func (ls *lanes) schedule(ctx context.Context, n int) {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 200*time.Millisecond, 15*time.Second
	told := ""
	unread := "the run-time settings can not be read"
	ls.waits[n].Store(&unread)
	select {
	case <-ls.s.config.Ready(): // before that, what operators paused would fire
	case <-ctx.Done():
		return
	}
	ls.waits[n].Store(nil)
	for {
		begun := time.Now()
		sched := scheduler.New(ls.js, ls.s.stream.UUID, n, scheduler.Options{
			Seal: ls.s.stream.Seal, Format: ls.s.stream.Format, Snapshots: ls.snapshots, Metrics: ls.scheduler, Logger: ls.s.log, Dir: ls.s.dir.Path(), Config: ls.s.config, Busy: ls.asked, Now: ls.s.clock.Now,
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
			told = ""
		}
		if err == nil {
			err = errors.New("it ended by itself")
		}
		why := err.Error()
		ls.waits[n].Store(&why)
		if why != told {
			told = why
			ls.s.log.Error("scheduler does not work; expiries and reminders wait, claims go on; trying again", "lane", n, "err", err)
		}
		if topology.Pause(ctx, pauses.NextBackOff()) != nil {
			return
		}
	}
}

// LaneReadiness is what /readyz says about a lane.
type LaneReadiness struct {
	Lane int `json:"lane"`
	lane.Status
	// Holder is the server that works the lane where we do not.
	Holder string `json:"holder,omitempty"`
	// Backlog is what its scheduler has before it, where that runs here and has caught up.
	Backlog *scheduler.Backlog `json:"backlog,omitempty"`
	// DueWaits says why expiries and reminders wait where we work the lane and its scheduler does not work.
	DueWaits string `json:"due_waits,omitempty"`
}

// check says whether every lane is worked by somebody.
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

// holdersFor is how long a look at the leases is good for: health is asked often, and by many.
const holdersFor = time.Second

// holder is the server that works a lane, "" = nobody, or not known.
func (ls *lanes) holder(n int) string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if time.Since(ls.looked) > holdersFor {
		ctx, cancel := context.WithTimeout(context.Background(), holdersFor)
		defer cancel()
		status, err := lease.Inspect(ctx, ls.js, LeaseGroup, len(ls.all))
		if err != nil {
			ls.s.log.Debug("leases not read", "lane", strconv.Itoa(n), "err", err)
		}
		ls.looked, ls.holders = time.Now(), status
	}
	if n < len(ls.holders.Holders) {
		return ls.holders.Holders[n].Server
	}
	return ""
}
