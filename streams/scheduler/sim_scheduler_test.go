package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/fanout"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// simScheduler is one process that schedules the lane, or could. Timers, planner, fan-out and snapshots are the real ones;
// what Run does in its loop happens here in steps, in whatever order chance has it: events are folded some at a time,
// acknowledgements come late or never.
type simScheduler struct {
	w       *simWorld
	name    string
	life    int // how often it was started
	skew    wire.Instant
	stopped bool // in its tracks

	r        *run // nil = dead
	next     int  // of the events, not folded yet
	caughtUp int  // it requests nothing before so many are folded
	settings *settings.Settings
	window   []*simShipment
	ill      bool
	frozen   *timers.Frozen // a snapshot not written yet, and how to write it
	save     func(context.Context) error
	ids      int
	most     int // customers that may be in flight; more may have been before the chunks became smaller

	requested map[string]map[string]*simRequest // by campaign
	clock     wire.Instant
	progress  time.Duration // of its clock, forwards only
}

// simShipment is a message on its way to the reminder stream.
type simShipment struct {
	eventlog.Attempt
	published    int
	done, landed bool // the result is there, and is a plain success
}

// simClock is a scheduler's clock. Nothing waits for it: chance decides what happens next.
type simClock struct{ s *simScheduler }

func (c simClock) Now() time.Time                     { return c.s.now().Time() }
func (simClock) After(time.Duration) <-chan time.Time { return nil }

func (s *simScheduler) now() wire.Instant { return s.w.now() + s.skew }

func (s *simScheduler) start() bool {
	w := s.w
	if s.r != nil {
		return false
	}
	s.life++
	w.Note("%s starts", s.name)
	sched := New(nil, topology.Log{UUID: simLog}, 0, Options{Snapshots: &w.snapshots, Metrics: w.metrics, Logger: slog.New(slog.DiscardHandler),
		Dir: w.t.TempDir(), Clock: simClock{s}, Load: load.NewMeter(1)})
	s.r = &run{Scheduler: sched, log: sched.opts.Logger, restoreFrom: &w.snapshots, pace: fanout.NewPace(nil)}
	s.r.meter()
	s.r.fan = &fanout.Fan{
		Queue: fanout.Queue{Sealer: simSealer, Owner: fmt.Sprint(s.name, s.life), Last: w.rmd.Last, Chained: w.bug.gallops || w.Rng.IntN(2) == 0},
		Pace:  s.r.pace, Clock: sched.opts.Clock, Log: s.r.log,
	}
	if last, err := w.rmd.Get(w.rmd.Last); err == nil {
		m, err := eventlog.ParseReminder(last.Header, last.Data, last.Sequence, last.Time)
		streamtest.Must(w.t, err)
		s.r.fan.Reached = m.Source
	}
	w.snapshots.reached = s.r.fan.Reached
	if w.bug.publishesAgain {
		s.r.fan.Reached = eventlog.Source{}
	}
	position := s.r.restore(context.Background())
	if s.next = int(position.Sequence); s.next > 0 {
		w.Count("scheduler started with a snapshot", 1)
		if w.bug.skips && s.next < len(w.events) {
			s.next++
		}
	}
	s.caughtUp = len(w.events)
	s.r.planner = newPlanner(s.r.timers)
	s.window, s.ill, s.frozen, s.settings = nil, false, nil, nil
	s.requested, s.clock, s.progress = map[string]map[string]*simRequest{}, s.now(), 0
	return true
}

// die is kill -9. What it sent is still on its way.
func (s *simScheduler) die() {
	if s.r != nil {
		s.r.timers.Close()
		s.r = nil
	}
}

func (s *simScheduler) killed() bool {
	if s.r == nil {
		return false
	}
	s.w.Note("%s is killed", s.name)
	s.die()
	return true
}

func (s *simScheduler) stop() bool {
	if s.r == nil || s.stopped {
		return false
	}
	s.stopped = true
	return true
}

func (s *simScheduler) wake() bool {
	was := s.stopped
	s.stopped = false
	return was
}

// goOn is once round the loop.
func (s *simScheduler) goOn() bool {
	w := s.w
	if s.r == nil || s.stopped {
		return false
	}
	now := s.now()
	if now > s.clock {
		s.progress += time.Duration(now-s.clock) * time.Microsecond
	} else if now < s.clock {
		clear(s.requested) // all is planned again
	}
	s.clock = now
	if s.settings != w.settings {
		s.settings = w.settings
		s.r.pace.Configure(s.settings)
		s.r.planner.configure(s.settings)
		clear(s.requested) // a pause that ends starts again
	}
	for n := w.Rng.IntN(4); (n >= 0 || s.next < s.caughtUp) && s.next < len(w.events) && !s.r.fan.Full(); n-- {
		if !s.fold(&w.events[s.next]) {
			return true
		}
		s.next++
	}
	if s.next >= s.caughtUp {
		s.request(now)
		s.judgeBounds()
	}
	if s.next >= s.caughtUp && s.next == len(w.events) {
		s.judgeSleep(now)
	}
	s.pump()
	return true
}

// fold takes in one event message.
func (s *simScheduler) fold(m *eventlog.Message) bool {
	w := s.w
	for _, line := range eventlog.Lines(m.Payload) {
		var ev wire.Event
		if err := wire.ParseEvent(line, &ev); err == nil {
			delete(s.requested, ev.Campaign)
		}
	}
	reached := s.r.fan.Reached
	waiting := s.r.fan.Unpublished()
	if err := s.r.fold(context.Background(), m); err != nil {
		w.Violate(simFits, "%s: %v", s.name, err)
		return false
	}
	if s.r.fan.Unpublished() > waiting && reached.Sequence == m.Sequence {
		w.Count("fan-out resumed within a step", 1)
	}
	if s.r.fan.Unpublished() > waiting && s.life > 1 && s.next < s.caughtUp {
		w.Count("a firing was late, for its scheduler was down", 1)
	}
	return true
}

// request sends what the planner requests, each message by itself.
func (s *simScheduler) request(now wire.Instant) {
	w, p := s.w, s.r.planner
	if !w.bug.blind || now > p.clock {
		p.at(now)
	}
	p.allow(w.chunk)
	s.most = max(p.inFlight[reminder], p.most)
	if w.bug.floods {
		p.most = 1 << 40
	}
	p.unpublished, p.held = s.r.fan.Unpublished()+s.inFlight(), s.r.fan.Full()
	if p.wake() > now && !p.ready() {
		return
	}
	cmds := p.requests(now)
	for e, pl := range p.plans {
		for c := range classes {
			for i := range pl.queues[c] {
				switch {
				case w.bug.forgets:
					pl.queues[c][i].again = wire.Never
				case w.bug.oversleeps:
					p.timers.SetWake(e, max(e.Wake(), now+seconds(20)))
				case w.bug.hasty:
					pl.queues[c][i].again = now
					p.timers.SetWake(e, now)
				}
			}
		}
	}
	for i := range cmds {
		cmd := cmds[i]
		s.ids++
		cmd.ID = fmt.Sprintf("%s-%d-%d", s.name, s.life, s.ids)
		s.judgeRequest(&cmd)
		w.Send(fmt.Sprintf("%s of %s", cmd.Type, cmd.ID), func() { w.keep(cmd) })
	}
}

// pump does what the fan-out does beside making messages: sends them, takes in results, and finds out what became of what
// was not acknowledged.
func (s *simScheduler) pump() {
	w, f := s.w, s.r.fan
	for len(s.window) > 0 && s.window[0].landed {
		s.pop()
	}
	if len(s.window) > 0 && s.window[0].done {
		s.ill = true
	}
	if s.ill {
		if s.mend(); s.ill || s.r == nil {
			return
		}
	}
	for n := w.Rng.IntN(4); n > 0 && f.Unpublished() > 0 && len(s.window) < s.room(); n-- {
		attempt, published := f.Next(f.Pace.Batch())
		x := &simShipment{Attempt: attempt, published: published}
		s.window = append(s.window, x)
		s.ship(x)
	}
}

// room is how many messages may be on their way.
func (s *simScheduler) room() int {
	return min(s.r.fan.Room(), 4)
}

func (s *simScheduler) pop() {
	s.window = s.window[1:]
}

// inFlight is how many customers are in messages in flight.
func (s *simScheduler) inFlight() (n int) {
	for _, x := range s.window {
		n += x.published
	}
	return n
}

// ship sends a message. Its result, if it comes, is the first to come.
func (s *simScheduler) ship(x *simShipment) {
	w := s.w
	x.done = false
	w.Send(fmt.Sprintf("message %d of %s", x.Expected+1, s.name), func() {
		ok := w.publish(x.Attempt)
		w.Send(fmt.Sprintf("result of message %d of %s", x.Expected+1, s.name), func() {
			if !x.done {
				x.done, x.landed = true, ok
			}
		})
	})
}

// mend: nothing is published while results are out; then the stream has what landed.
func (s *simScheduler) mend() {
	w := s.w
	for _, x := range s.window {
		if !x.done {
			return
		}
	}
	for len(s.window) > 0 {
		x := s.window[0]
		var placed *eventlog.Raw
		if raw, err := w.rmd.Get(x.Expected + 1); err == nil {
			placed = &raw
		}
		outcome := x.Judge(w.rmd.Last, placed)
		if w.bug.unresolved {
			outcome = eventlog.Unchanged
			for i, x := range s.window {
				x.Expected = w.rmd.Last + uint64(i)
			}
		}
		if outcome == eventlog.Lost && !w.bug.adopts {
			w.Count("scheduler lost the reminder stream", 1)
			w.Note("%s has lost the reminder stream", s.name)
			s.die()
			return
		}
		if outcome == eventlog.Unchanged {
			break
		}
		s.pop()
	}
	s.ill = false
	for _, x := range s.window {
		x.landed = false
		s.ship(x)
	}
}

// timeOut gives up waiting for a result.
func (s *simScheduler) timeOut() bool {
	if s.r == nil || len(s.window) == 0 {
		return false
	}
	x := s.window[s.w.Rng.IntN(len(s.window))]
	was := x.done
	x.done = true
	return !was
}

// settleAll gives up waiting for all results: nothing is on its way any more.
func (s *simScheduler) settleAll() {
	for _, x := range s.window {
		x.done = true
	}
}

func (s *simScheduler) idle() bool {
	return s.r != nil && s.next == len(s.w.events) && len(s.window) == 0 && s.r.fan.Unpublished() == 0
}

// freeze starts a snapshot, which is taken and written later.
func (s *simScheduler) freeze() bool {
	w := s.w
	if s.r == nil || s.stopped || s.frozen != nil || s.next < s.caughtUp {
		return false
	}
	settled := s.r.fan.Unpublished() == 0 && len(s.window) == 0
	if !settled && !w.bug.unsettled {
		return false
	}
	f := s.r.fan
	if w.bug.unsettled {
		s.r.fan = &fanout.Fan{Queue: fanout.Queue{Reached: f.Reached}, Pace: f.Pace, Clock: f.Clock}
		defer func() { s.r.fan = f }()
	}
	s.frozen, s.save = s.r.take()
	return s.frozen != nil
}

func (s *simScheduler) write() bool {
	if s.r == nil || s.stopped || s.frozen == nil {
		return false
	}
	for !s.frozen.Continue(0) { // what was folded since freeze was taken before it changed
	}
	streamtest.Must(s.w.t, s.save(context.Background()))
	s.r.timers.Thaw()
	s.frozen = nil
	s.w.Note("%s has written a snapshot of message %d", s.name, s.w.snapshots.stored[len(s.w.snapshots.stored)-1].meta.Position.Sequence)
	return true
}

type simSnapshots struct {
	memoryStore
	reached eventlog.Source // of the scheduler that starts
}

// Load accepts what run.acceptable does; there is no stream here to request whether the position is in it: it is.
func (k *simSnapshots) Load(_ context.Context, _ string, _ func(snapstore.Meta) error, read func(io.Reader) error) (snapstore.Meta, bool, error) {
	for _, x := range slices.Backward(k.stored) {
		var n note
		if err := json.Unmarshal(x.meta.Note, &n); err != nil {
			return snapstore.Meta{}, false, err
		}
		if fanout.CompareSources(eventlog.Source{Sequence: n.Sequence, Line: n.Line, LastR: n.LastR}, k.reached) > 0 {
			continue
		}
		return x.meta, true, read(bytes.NewReader(x.content))
	}
	return snapstore.Meta{}, false, nil
}
