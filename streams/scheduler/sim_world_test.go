package scheduler

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const simLog = "01234567-89ab-7cde-8f01-23456789abcd"

var simSealer = eventlog.Reminders(nil, 0).In(topology.Log{UUID: simLog}.WithKey([32]byte{1})).Sealer()

// simMust are things that come about by themselves, and must.
var simMust = []string{"reminders fired", "reminders dropped", "coupons expired", "request repeated", "reminder stream refused a write",
	"scheduler lost the reminder stream", "scheduler began with a snapshot", "fan-out resumed within a firing", "a message publishes of several steps",
	"a firing was late, for its scheduler was down",
	"reminder stream refused what followed a refused message"}

// simBug breaks one rule.
type simBug struct {
	forgets        bool // requests are never repeated
	hasty          bool // requests are repeated at once
	blind          bool // the planner is not published that its clock ran back
	publishesAgain bool // a fan-out begins at the first firing that it folds
	unsettled      bool // snapshots are taken while the fan-out is at work
	skips          bool // Timers are folded on from one message behind its snapshot
	noFence        bool // the reminder stream takes any write
	adopts         bool // a fan-out goes on behind another's message
	unresolved     bool // what was not acknowledged is published again, behind whatever is there
	gallops        bool // messages of a fan-out do not name the one before them
	believes       bool // a request sets the lane's clock
}

// simWorld is a lane and everything around it.
type simWorld struct {
	t    testing.TB
	bug  simBug
	seed uint64
	rng  *rand.Rand
	now  wire.Instant
	skew wire.Instant // of the clock that stamps commands

	lane     *domain.Lane
	commands []simCommand // not decided
	decided  uint64
	events   []eventlog.Message
	rmd      []eventlog.Raw
	network  []simPacket

	settings   *settings.Settings
	chunk      int
	schedulers []*simScheduler
	snapshots  simSnapshots
	metrics    *Metrics
	people     simPeople
	judge      *simJudge

	doings []simDoing
	total  int
	counts map[string]int
	notes  []string
	found  *simViolation
}

type simCommand struct {
	cmd wire.Command
	at  wire.Instant
}

// simPacket is something on its way. It may arrive never, once, or more often, in any order.
type simPacket struct {
	what   string
	arrive func()
}

// simDoing is what may happen in a step, and how often beside the others.
type simDoing struct {
	name   string
	weight int
	do     func() bool // false: it did not apply
}

// newSimWorld makes a world in which only the seed decides. Some worlds know only some kinds of trouble, so that one kind
// does not hide another.
func newSimWorld(t testing.TB, seed uint64, b simBug) *simWorld {
	w := &simWorld{t: t, bug: b, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), metrics: simMetrics, counts: map[string]int{}}
	w.now = wire.At(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	grace := []time.Duration{wire.DefaultReminderGrace, 10 * 24 * time.Hour}[w.rng.IntN(2)]
	w.lane = domain.NewLane(domain.LaneOptions{Lanes: 1, Key: [32]byte{7}, Grace: grace})
	w.settings = settings.Default()
	w.settings.ReminderBatch = []int{1, 3, 500}[w.rng.IntN(3)]
	w.chunk = []int{2, 20, maxChunk}[w.rng.IntN(3)]
	w.judge = &simJudge{w: w, sums: map[uint64]string{}}
	w.people.w = w
	for i := range 2 {
		w.schedulers = append(w.schedulers, &simScheduler{w: w, name: string(rune('A' + i))})
	}
	sometimes := func(weight int) int { return weight * []int{0, 1, 1, 4}[w.rng.IntN(4)] }
	each := func(do func(*simScheduler) bool) func() bool {
		return func() bool { return do(w.schedulers[w.rng.IntN(len(w.schedulers))]) }
	}
	w.doings = []simDoing{
		{"packet arrives", 300, w.arrive},
		{"packet lost", sometimes(20), w.lose},
		{"packet doubled", sometimes(20), w.double},
		{"something does something", 120, w.people.act},
		{"lane decides", 200, w.decide},
		{"scheduler goes on", 400, each((*simScheduler).goOn)},
		{"scheduler stopped in its tracks", sometimes(6), each((*simScheduler).stop)},
		{"scheduler woken", 12, each((*simScheduler).wake)},
		{"scheduler killed", sometimes(6), each((*simScheduler).killed)},
		{"scheduler started", 15, each((*simScheduler).start)},
		{"snapshot frozen", 30, each((*simScheduler).freeze)},
		{"snapshot written", 30, each((*simScheduler).write)},
		{"publish times out", sometimes(10), each((*simScheduler).timeOut)},
		{"time passes", 80, func() bool { return w.pass(wire.Instant(w.rng.Int64N(2_000_000))) }},
		{"time comes", 100, func() bool { return w.comes() }},
		{"an hour passes", 1, func() bool { return w.pass(wire.Instant(time.Hour / time.Microsecond)) }},
		{"server clock is set", sometimes(2), func() bool { w.skew = w.jump(); return w.pass(0) }},
		{"scheduler's clock is set", sometimes(8), each(func(s *simScheduler) bool { s.skew = w.jump(); return true })},
		{"settings changed", sometimes(3), w.configure},
	}
	for _, d := range w.doings {
		w.total += d.weight
	}
	w.schedulers[0].start()
	w.pass(0)
	return w
}

var simMetrics = NewMetrics(nil)

// run lets steps things happen, then heals the world and looks at what is left.
func (w *simWorld) run(steps int) (found *simViolation) {
	defer func() {
		if r := recover(); r != nil && w.found == nil {
			w.violate("panic", "%v\n%s", r, debug.Stack())
		}
		for _, s := range w.schedulers {
			s.die()
		}
		found = w.found
	}()
	for n := 0; n < steps && w.found == nil; n++ {
		pick := w.rng.IntN(w.total)
		for _, d := range w.doings {
			if pick -= d.weight; pick < 0 {
				if d.do() {
					w.came(d.name, 1)
				}
				break
			}
		}
	}
	if w.found == nil {
		w.heal()
	}
	return w.found
}

func (w *simWorld) violate(kind, format string, args ...any) {
	if w.found == nil {
		w.found = &simViolation{kind, fmt.Sprintf(format, args...)}
	}
}

// came counts what came about.
func (w *simWorld) came(what string, n int) {
	if n > 0 {
		w.counts[what] += n
	}
}

func (w *simWorld) note(format string, args ...any) {
	w.notes = append(w.notes, fmt.Sprintf("%s  %s", w.now, fmt.Sprintf(format, args...)))
}

// send puts something on its way.
func (w *simWorld) send(what string, arrive func()) {
	w.network = append(w.network, simPacket{what, arrive})
}

func (w *simWorld) take() (simPacket, bool) {
	if len(w.network) == 0 {
		return simPacket{}, false
	}
	i := w.rng.IntN(len(w.network))
	if w.rng.IntN(3) > 0 {
		i = 0 // as a rule in order
	}
	p := w.network[i]
	w.network = append(w.network[:i:i], w.network[i+1:]...)
	return p, true
}

func (w *simWorld) arrive() bool {
	p, ok := w.take()
	if ok {
		w.note("arrives: %s", p.what)
		p.arrive()
	}
	return ok
}

func (w *simWorld) lose() bool {
	p, ok := w.take()
	w.note("lost: %s", p.what)
	return ok
}

func (w *simWorld) double() bool {
	if len(w.network) == 0 {
		return false
	}
	w.network = append(w.network, w.network[w.rng.IntN(len(w.network))])
	return true
}

// stamp is the time that a command gets which is kept now.
func (w *simWorld) stamp() wire.Instant { return w.now + w.skew }

// keep puts a command behind the others.
func (w *simWorld) keep(cmd wire.Command) {
	w.commands = append(w.commands, simCommand{cmd, w.stamp()})
}

func (w *simWorld) pass(d wire.Instant) bool {
	w.now += d
	w.judge.newest = max(w.judge.newest, w.stamp())
	return true
}

// comes goes on to the next instant at which something falls due, unless that is far away.
func (w *simWorld) comes() bool {
	at := w.judge.next(w.now)
	if at > w.now+wire.Instant(time.Hour/time.Microsecond) {
		return false
	}
	return w.pass(at - w.now)
}

// jump is how far a clock may be off.
func (w *simWorld) jump() wire.Instant {
	reach := []time.Duration{0, 2 * time.Second, 5 * time.Minute, 3 * time.Hour}[w.rng.IntN(4)]
	off := wire.Instant(0)
	if reach > 0 {
		off = wire.Instant(w.rng.Int64N(int64(2*reach/time.Microsecond))) - wire.Instant(reach/time.Microsecond)
	}
	w.note("a clock is set to be %s off", time.Duration(off)*time.Microsecond)
	return off
}

// configure sets a batch, a chunk, a pause, or ends all pauses.
func (w *simWorld) configure() bool {
	s := *w.settings
	name := fmt.Sprint("c", w.rng.IntN(4))
	switch w.rng.IntN(5) {
	case 0:
		s.ReminderBatch = []int{1, 3, 500}[w.rng.IntN(3)]
	case 1:
		w.chunk = []int{2, 20, maxChunk}[w.rng.IntN(3)]
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
	some := w.commands[:1+w.rng.IntN(min(len(w.commands), 20))]
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
		w.note("decides %s: %s %s", line, out.Status, out.Refusal)
		for i := range evs {
			payload = append(evs[i].AppendJSON(payload), '\n')
		}
		w.people.hear(&cmd, &out)
	}
	header := eventlog.Header{Commands: [2]uint64{w.decided + 1, w.decided + uint64(len(some))}, CommandTime: w.lane.Clock().Time(), LaneTime: w.lane.Clock().Time(), Owner: "lane"}
	w.decided += uint64(len(some))
	m, err := eventlog.Parse(header.Encode(), payload, uint64(len(w.events)+1), w.now.Time())
	if err != nil {
		w.t.Fatal(err)
	}
	w.events = append(w.events, m)
	w.judge.step(&m)
	return true
}

// publish is what the reminder stream does with a message: it keeps it if it ends where the writer believes (the fence).
func (w *simWorld) publish(a eventlog.Attempt) (ok bool) {
	if a.Expected != uint64(len(w.rmd)) && !w.bug.noFence {
		w.came("reminder stream refused a write", 1)
		return false
	}
	last := ""
	if n := len(w.rmd); n > 0 {
		last = w.rmd[n-1].Header.Get(jetstream.MsgIDHeader)
	}
	if a.After != "" && a.After != last && !w.bug.noFence && !w.bug.gallops {
		w.came("reminder stream refused what followed a refused message", 1)
		return false
	}
	a.Header = maps.Clone(a.Header)
	a.Header.Set(jetstream.MsgIDHeader, a.ID)
	raw := eventlog.Raw{Header: a.Header, Data: a.Payload, Sequence: uint64(len(w.rmd) + 1), Time: w.now.Time()}
	w.rmd = append(w.rmd, raw)
	w.judge.publishing(&raw)
	return true
}

// heal ends all trouble: clocks are right, nothing is lost, one scheduler runs. Soon nothing may be left that is due.
func (w *simWorld) heal() {
	w.note("healed")
	w.skew, w.settings = 0, settings.Default()
	w.chunk = maxChunk
	w.pass(max(w.lane.Clock()-w.now, 0) + 1)
	for _, s := range w.schedulers[1:] {
		s.die()
	}
	s := w.schedulers[0]
	s.skew, s.stopped = 0, false
	for range 400 {
		if w.found != nil {
			return
		}
		if s.r == nil {
			s.start()
		}
		for n := 0; n < 10_000 && (len(w.network) > 0 || len(w.commands) > 0) && w.found == nil; n++ {
			if len(w.network) > 0 {
				p := w.network[0]
				w.network = w.network[1:]
				p.arrive()
			} else {
				w.decide()
			}
		}
		s.settleAll() // what was lost is found out
		s.goOn()
		if len(w.network) == 0 && len(w.commands) == 0 && s.idle() && w.judge.due(w.now) == "" {
			return
		}
		w.pass(1_000_000)
	}
	if what := w.judge.due(w.now); what != "" {
		w.violate(simLeft, "%s", what)
	} else if w.found == nil {
		w.violate(simStalls, "%d packets, %d commands", len(w.network), len(w.commands))
	}
}
