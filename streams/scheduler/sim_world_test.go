package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/simtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const simLog = "01234567-89ab-7cde-8f01-23456789abcd"

var simSealer = eventlog.Reminders(nil, 0).In(topology.Log{UUID: simLog}.WithKey([32]byte{1})).Sealer()

// simBug breaks one rule.
type simBug struct {
	forgets        bool // requests are never repeated
	hasty          bool // requests are repeated at once
	floods         bool // whatever is due is requested at once
	oversleeps     bool // a campaign with a request in flight is looked at too late
	blind          bool // the planner does not see that its clock ran back
	publishesAgain bool // a fan-out starts at the first firing that it folds
	unsettled      bool // snapshots are taken while the fan-out is at work
	skips          bool // Timers are folded on from one message after its snapshot
	noFence        bool // the reminder stream takes any write
	adopts         bool // a fan-out goes on after another's message
	unresolved     bool // what was not acknowledged is published again, after whatever is there
	gallops        bool // messages of a fan-out do not name the one before them
	believes       bool // a request sets the lane's clock
}

// simWorld is a lane and everything around it.
type simWorld struct {
	*simtest.World
	t    testing.TB
	bug  simBug
	skew wire.Instant // of the clock that stamps commands

	lane     *domain.Lane
	commands []simCommand // not decided
	decided  uint64
	events   []eventlog.Message
	rmd      simtest.Stream

	settings   *settings.Settings
	chunk      int
	schedulers []*simScheduler
	snapshots  simSnapshots
	metrics    *Metrics
	people     simPeople
	judge      *simJudge
}

func (w *simWorld) now() wire.Instant { return wire.At(w.Now) }

// Look has nothing to do: the judge sees each message when it is written.
func (w *simWorld) Look() {}

// Close ends the schedulers.
func (w *simWorld) Close() {
	for _, s := range w.schedulers {
		s.die()
	}
}

type simCommand struct {
	cmd wire.Command
	at  wire.Instant
}

// newSimWorld makes a world in which only the seed decides.
func newSimWorld(t testing.TB, seed uint64, b simBug) simtest.Sim {
	w := &simWorld{World: simtest.New(seed), t: t, bug: b, metrics: simMetrics, rmd: simtest.Stream{Name: "reminders"}}
	grace := []time.Duration{wire.DefaultReminderGrace, 10 * 24 * time.Hour}[w.Rng.IntN(2)]
	w.lane = domain.NewLane(domain.LaneOptions{Lanes: 1, Key: [32]byte{7}, Grace: grace})
	w.settings = settings.Default()
	w.settings.ReminderBatch = []int{1, 3, 500}[w.Rng.IntN(3)]
	w.chunk = []int{2, 20, maxChunk}[w.Rng.IntN(3)]
	w.judge = newSimJudge(w)
	w.people.w = w
	for i := range 2 {
		w.schedulers = append(w.schedulers, &simScheduler{w: w, name: string(rune('A' + i))})
	}
	sometimes := w.Sometimes
	each := func(do func(*simScheduler) bool) func() bool {
		return func() bool { return do(w.schedulers[w.Rng.IntN(len(w.schedulers))]) }
	}
	w.Act("packet arrives", 300, w.Arrive)
	w.Act("packet lost", sometimes(20), w.Lose)
	w.Act("packet doubled", sometimes(20), w.Double)
	w.Act("something does something", 120, w.people.act)
	w.Act("lane decides", 200, w.decide)
	w.Act("scheduler goes on", 400, each((*simScheduler).goOn))
	w.Act("scheduler stopped in its tracks", sometimes(6), each((*simScheduler).stop))
	w.Act("scheduler woken", 12, each((*simScheduler).wake))
	w.Act("scheduler killed", sometimes(6), each((*simScheduler).killed))
	w.Act("scheduler started", 15, each((*simScheduler).start))
	w.Act("snapshot frozen", 30, each((*simScheduler).freeze))
	w.Act("snapshot written", 30, each((*simScheduler).write))
	w.Act("publish times out", sometimes(10), each((*simScheduler).timeOut))
	w.Act("time passes", 80, func() bool { return w.pass(wire.Instant(w.Rng.Int64N(2_000_000))) })
	w.Act("time comes", 100, func() bool { return w.comes() })
	w.Act("an hour passes", 1, func() bool { return w.pass(wire.Instant(time.Hour / time.Microsecond)) })
	w.Act("server clock is set", sometimes(2), func() bool { w.skew = w.jump(); return w.pass(0) })
	w.Act("scheduler's clock is set", sometimes(8), each(func(s *simScheduler) bool { s.skew = w.jump(); return true }))
	w.Act("settings changed", sometimes(3), w.configure)
	w.schedulers[0].start()
	w.pass(0)
	return w
}

var simMetrics = NewMetrics(nil)

// stamp is the time that a command gets which is kept now.
func (w *simWorld) stamp() wire.Instant { return w.now() + w.skew }

// keep puts a command after the others.
func (w *simWorld) keep(cmd wire.Command) {
	w.commands = append(w.commands, simCommand{cmd, w.stamp()})
}

func (w *simWorld) pass(d wire.Instant) bool {
	w.Now = w.Now.Add(time.Duration(d) * time.Microsecond)
	w.judge.newest = max(w.judge.newest, w.stamp())
	return true
}

// comes goes on to the next instant at which something falls due, unless that is far away.
func (w *simWorld) comes() bool {
	at := w.judge.next(w.now())
	if at > w.now()+wire.Instant(time.Hour/time.Microsecond) {
		return false
	}
	return w.pass(at - w.now())
}

// jump is how far a clock may be off.
func (w *simWorld) jump() wire.Instant {
	reach := []time.Duration{0, 2 * time.Second, 5 * time.Minute, 3 * time.Hour}[w.Rng.IntN(4)]
	off := wire.Instant(0)
	if reach > 0 {
		off = wire.Instant(w.Rng.Int64N(int64(2*reach/time.Microsecond))) - wire.Instant(reach/time.Microsecond)
	}
	w.Note("a clock is set to be %s off", time.Duration(off)*time.Microsecond)
	return off
}

// configure sets a batch, a chunk, a pause, or ends all pauses.
func (w *simWorld) configure() bool {
	s := *w.settings
	name := fmt.Sprint("c", w.Rng.IntN(4))
	switch w.Rng.IntN(5) {
	case 0:
		s.ReminderBatch = []int{1, 3, 500}[w.Rng.IntN(3)]
	case 1:
		w.chunk = []int{2, 20, maxChunk}[w.Rng.IntN(3)]
	case 2:
		s.ExpiryPaused = map[string]bool{name: true}
	case 3:
		s.RemindersPaused = map[string]bool{name: true}
	case 4:
		s.ExpiryPaused, s.RemindersPaused = nil, nil
	}
	w.settings = &s
	return true
}

// decide lets the lane take some commands and write a step.
func (w *simWorld) decide() bool {
	if len(w.commands) == 0 {
		return false
	}
	some := w.commands[:1+w.Rng.IntN(min(len(w.commands), 20))]
	w.commands = w.commands[len(some):]
	var payload []byte
	for _, c := range some {
		line := c.cmd.AppendJSON(nil)
		var cmd wire.Command
		if err := wire.ParseCommand(line, wire.Defaults{}, &cmd); err != nil {
			w.t.Fatalf("%s: %v", line, err)
		}
		if w.bug.believes {
			c.at = max(c.at, cmd.Through, cmd.DueAt)
		}
		evs, out := w.lane.Decide(&cmd, c.at, nil)
		w.Note("decides %s: %s %s", line, out.Status, out.Refusal)
		for i := range evs {
			payload = append(evs[i].AppendJSON(payload), '\n')
		}
		w.people.hear(&cmd, &out)
	}
	header := eventlog.Header{Commands: [2]uint64{w.decided + 1, w.decided + uint64(len(some))}, CommandTime: w.lane.Clock().Time(), LaneTime: w.lane.Clock().Time(), Owner: "lane"}
	w.decided += uint64(len(some))
	m, err := eventlog.Parse(header.Encode(), payload, uint64(len(w.events)+1), w.Now)
	streamtest.Must(w.t, err)
	w.events = append(w.events, m)
	w.judge.step(&m)
	return true
}

// publish is what the reminder stream does with a message: it keeps it if it ends where the writer believes (the fence).
func (w *simWorld) publish(a eventlog.Attempt) (ok bool) {
	number, follows := w.rmd.Fence(a)
	if !number && !w.bug.noFence {
		w.Count("reminder stream refused a write", 1)
		return false
	}
	if !follows && !w.bug.noFence && !w.bug.gallops {
		w.Count("reminder stream refused what followed a refused message", 1)
		return false
	}
	raw, err := w.rmd.Get(w.rmd.Write("scrip.rmd.0", a, w.Now, true))
	streamtest.Must(w.t, err)
	w.judge.publishing(&raw)
	return true
}

// Heal ends all trouble: clocks are right, nothing is lost, one scheduler runs. Soon nothing may be left that is due.
func (w *simWorld) Heal() {
	w.Note("healed")
	w.skew, w.settings = 0, settings.Default()
	w.chunk = maxChunk
	w.pass(max(w.lane.Clock()-w.now(), 0) + 1)
	for _, s := range w.schedulers[1:] {
		s.die()
	}
	s := w.schedulers[0]
	s.skew, s.stopped = 0, false
	for range 400 {
		if w.Found != nil {
			return
		}
		if s.r == nil {
			s.start()
		}
		for n := 0; n < 10_000 && (w.InFlight() > 0 || len(w.commands) > 0) && w.Found == nil; n++ {
			if w.InFlight() > 0 {
				w.ArriveNext()
			} else {
				w.decide()
			}
		}
		s.settleAll() // what was lost is found out
		s.goOn()
		if w.InFlight() == 0 && len(w.commands) == 0 && s.idle() && w.judge.due(w.now()) == "" {
			return
		}
		w.pass(1_000_000)
	}
	if what := w.judge.due(w.now()); what != "" {
		w.Violate(simLeft, "%s", what)
	} else if w.Found == nil {
		w.Violate(simStalls, "%d packets, %d commands", w.InFlight(), len(w.commands))
	}
}
