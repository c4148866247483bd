package sim

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const logID = "01234567-89ab-7cde-8f01-23456789abcd"

var laneOptions = domain.LaneOptions{Lane: 0, Lanes: 1, Key: [32]byte{7, 7, 7}}

// bug breaks one rule of the protocol.
type bug struct {
	noFence      bool // the event store takes any write
	answerEarly  bool // answers leave with the write, not with its ack
	freeRepeats  bool // what changes nothing is answered at once, without waiting for its step
	ackPosition  bool // an owner continues at a consumer's ack, not where the events end
	quietRepeats bool // the same, and its steps claim to follow
	pipelined    bool // a second write follows the first before that is acknowledged
	hasty        bool // a lane stops without checking whether it is only behind
	wildClock    bool // lane time follows the stamps backwards
	anySnapshot  bool // snapshots are not held against the log
	anyCommands  bool // the command stream is not held against the events
	anyFollower  bool // bounds are believed although no leader gave them
	firstLook    bool // a contradiction is believed when it is seen first
}

// world is a lane and everything around it.
type world struct {
	bug     bug
	log     topology.Log
	seed    uint64
	rng     *rand.Rand
	lossy   bool // sync interval: a power loss takes what was not synced
	now     time.Time
	skew    time.Duration // of the clock that stamps commands
	full    bool          // the event store takes nothing
	damaged bool          // a store lost something: a lane may stop

	commands, events store
	backups          [][2]store // commands, events
	snapshots        []snapshot
	network          []packet
	processes        []*process
	crowd            *crowd
	judge            *judge
	takings          int

	doings []doing
	total  int
	counts map[string]int // what really happened
	steps  int
	notes  []string
	found  *violation
}

type snapshot struct {
	mark  protocol.Mark
	bytes []byte
}

// packet is something on its way. It may arrive never, once, or more often, in any order.
type packet struct {
	what   string
	arrive func()
}

type violation struct{ kind, text string }

func (v *violation) String() string { return v.kind + ": " + v.text }

// doing is what may happen in a step, and how often beside the others.
type doing struct {
	name   string
	weight int
	do     func() bool // false: it did not apply
}

// newWorld makes a world in which only the seed decides. Some worlds know only some kinds of trouble, so that one kind
// does not hide another.
func newWorld(seed uint64, b bug) *world {
	w := &world{
		bug: b, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		commands: store{name: "commands"}, events: store{name: "events"}, counts: map[string]int{},
	}
	w.log = topology.Log{UUID: logID, Lanes: 1, Format: topology.Format}.WithKey(laneOptions.Key)
	w.lossy = w.rng.IntN(4) == 0
	w.judge = newJudge(w)
	w.crowd = newCrowd(w)
	for i := range 3 {
		w.processes = append(w.processes, &process{w: w, name: string(rune('A' + i)), phase: dead})
	}
	w.processes[0].phase = idle
	sometimes := func(weight int) int { return weight * []int{0, 1, 1, 4}[w.rng.IntN(4)] }
	w.doings = []doing{
		{"packet arrives", 400, w.arrive},
		{"client sends a request", 120, w.crowd.issue},
		{"client repeats a request", 60, w.crowd.repeat},
		{"owner goes on", 400, w.goOn},
		{"packet lost", sometimes(30), w.lose},
		{"packet doubled", sometimes(30), w.double},
		{"owner paused", sometimes(8), w.pause},
		{"owner woken", 12, w.wake},
		{"owner killed", sometimes(4), w.kill},
		{"owner started", 10, w.start},
		{"server clock jumps", sometimes(4), func() bool { w.skew = w.jump(w.skew); return true }},
		{"owner clock jumps", sometimes(4), func() bool { p := w.any(); p.skew = w.jump(p.skew); return true }},
		{"event store full", sometimes(3), func() bool { w.full = !w.full; return true }},
		{"foreign message", sometimes(2), w.foreign},
		{"backup", 3, w.backup},
		{"store restored", sometimes(1), w.restore},
		{"commands trimmed from outside", sometimes(1), w.trim},
		{"election of the commands", sometimes(6), func() bool { return w.elect(&w.commands) }},
		{"election of the events", sometimes(3), func() bool { return w.elect(&w.events) }},
		{"sync", 20, w.sync},
		{"power loss", sometimes(2), w.powerLoss},
		{"snapshot damaged or foreign", sometimes(3), w.spoil},
	}
	for _, d := range w.doings {
		w.total += d.weight
	}
	return w
}

// run lets steps things happen, then heals the world and looks at what is left.
func (w *world) run(steps int) (found *violation) {
	defer func() {
		if r := recover(); r != nil && w.found == nil {
			w.violate("panic", "%v\n%s", r, debug.Stack())
		}
		found = w.found
	}()
	for w.steps < steps && w.found == nil {
		w.step()
	}
	if w.found == nil {
		w.heal()
	}
	return w.found
}

func (w *world) step() {
	w.steps++
	w.now = w.now.Add(time.Duration(1+w.rng.IntN(40_000)) * time.Microsecond)
	at := w.rng.IntN(w.total)
	for _, d := range w.doings {
		if at -= d.weight; at < 0 {
			if d.do() {
				w.count(d.name)
			}
			break
		}
	}
	w.judge.look()
}

func (w *world) count(what string) { w.counts[what]++ }

func (w *world) note(format string, args ...any) {
	if len(w.notes) > 80 {
		w.notes = append(w.notes[:0], w.notes[40:]...)
	}
	w.notes = append(w.notes, fmt.Sprintf("%5d ", w.steps)+fmt.Sprintf(format, args...))
}

func (w *world) violate(kind, format string, args ...any) {
	if w.found == nil {
		w.found = &violation{kind, fmt.Sprintf(format, args...)}
	}
}

func (w *world) send(what string, arrive func()) { w.network = append(w.network, packet{what, arrive}) }

func (w *world) take(i int) packet {
	p := w.network[i]
	w.network = append(w.network[:i], w.network[i+1:]...)
	return p
}

// arrive delivers a packet, more often than not an old one.
func (w *world) arrive() bool {
	if len(w.network) == 0 {
		return false
	}
	p := w.take(min(w.rng.IntN(len(w.network)), w.rng.IntN(len(w.network))))
	w.note("arrives: %s", p.what)
	p.arrive()
	return true
}

func (w *world) lose() bool {
	if len(w.network) == 0 {
		return false
	}
	w.note("lost: %s", w.take(w.rng.IntN(len(w.network))).what)
	return true
}

func (w *world) double() bool {
	if len(w.network) == 0 {
		return false
	}
	w.network = append(w.network, w.network[w.rng.IntN(len(w.network))])
	return true
}

func (w *world) any() *process { return w.processes[w.rng.IntN(len(w.processes))] }

// goOn lets an owner do one thing.
func (w *world) goOn() bool {
	p := w.any()
	return !p.paused && p.phase != dead && p.next()
}

func (w *world) pause() bool {
	p := w.any()
	if p.phase == dead || p.paused {
		return false
	}
	p.paused = true
	w.note("%s is stopped in its tracks", p.name)
	return true
}

func (w *world) wake() bool {
	p := w.any()
	woken := p.paused
	p.paused = false
	return woken
}

func (w *world) kill() bool {
	p := w.any()
	if p.phase == dead {
		return false
	}
	w.note("%s is killed", p.name)
	p.paused = false
	p.leave(dead)
	return true
}

func (w *world) start() bool {
	p := w.any()
	if p.phase != dead {
		return false
	}
	if p.rebase = w.rng.IntN(4) == 0; p.rebase {
		w.note("%s starts, with a rebase left behind", p.name)
	}
	return p.next()
}

// jump steps a clock, mostly by little, both ways.
func (w *world) jump(skew time.Duration) time.Duration {
	by := time.Duration(w.rng.Int64N(int64(4 * time.Second)))
	if w.rng.IntN(2) == 0 {
		by = -by
	}
	if skew += by; skew > 8*time.Second || skew < -8*time.Second {
		skew = 0
	}
	return skew
}

// write is the event store: the fence, and a disk that may be full before or after the write.
func (w *world) write(a eventlog.Attempt) (sequence uint64, ok bool) {
	if w.events.last != a.Expected && !w.bug.noFence {
		w.count("write refused by the fence")
		return 0, false
	}
	if w.full && w.rng.IntN(2) == 0 {
		w.count("write refused by the disk")
		return 0, false
	}
	// As the wire would carry it: the sender's copy is its own.
	h := nats.Header{}
	for name, values := range a.Header {
		h[name] = append([]string(nil), values...)
	}
	sequence = w.events.append(topology.Evt(0), h, append([]byte(nil), a.Payload...), w.now.Add(w.skew))
	if !w.lossy {
		w.events.synced = sequence
	}
	return sequence, !w.full
}

func (w *world) foreign() bool {
	covered := w.judge.covered
	h := eventlog.Header{Commands: [2]uint64{covered + 2, covered + 3}, CommandTime: w.now, LaneTime: w.now, Owner: "mallory"}.Encode()
	payload := []byte("I do not belong here")
	switch w.rng.IntN(5) {
	case 0:
		h = nats.Header{}
	case 1: // as if of a newer version
		h.Set(topology.HeaderFormat, "3")
	case 2: // a step that was written once before
		if w.events.last > 0 {
			old := w.events.messages[w.rng.IntN(len(w.events.messages))]
			if old.Header.Get(topology.HeaderSeal) != "" {
				h, payload = old.Header, old.Data
			}
		}
	case 3: // what would be the next step, with a seal of another log's key
		h = eventlog.EventSealer(topology.Log{UUID: "other"}.WithKey(laneOptions.Key), 0).Encode(
			eventlog.Header{Commands: [2]uint64{covered + 1, covered + 1}, CommandTime: w.now, LaneTime: w.now, Owner: "mallory"}, w.events.last+1, payload)
	}
	w.events.append(topology.Evt(0), h, payload, w.now)
	if !w.lossy {
		w.events.synced = w.events.last
	}
	return true
}

func (w *world) backup() bool {
	w.backups = append(w.backups, [2]store{w.commands.copy(), w.events.copy()})
	return true
}

// restore puts one or both streams back. An operator stops the servers first.
func (w *world) restore() bool {
	if len(w.backups) == 0 {
		return false
	}
	w.blackout("restore")
	b := w.backups[w.rng.IntN(len(w.backups))]
	which := w.rng.IntN(3)
	if which != 0 {
		w.commands.restore(b[0])
	}
	if which != 1 {
		w.events.restore(b[1])
	}
	w.damaged = true
	w.judge.forget()
	return true
}

func (w *world) blackout(why string) {
	w.note("%s: everything goes down", why)
	for _, p := range w.processes {
		p.paused = false
		p.leave(dead)
	}
	w.network = nil
}

// trim is a program that purges undecided commands.
func (w *world) trim() bool {
	w.commands.trim(w.commands.last - min(w.commands.last, uint64(w.rng.IntN(3))))
	w.damaged = true
	w.judge.forget()
	return true
}

func (w *world) sync() bool {
	w.commands.synced, w.events.synced = w.commands.last, w.events.last
	return w.lossy
}

// powerLoss takes the machine with server and owners, and what is not on its disk.
func (w *world) powerLoss() bool {
	w.blackout("power loss")
	if !w.lossy {
		w.commands.synced, w.events.synced = w.commands.last, w.events.last
		return true
	}
	if w.commands.synced < w.commands.last || w.events.synced < w.events.last {
		w.count("tail lost")
		w.damaged = true
	}
	w.commands.cut(w.commands.synced)
	w.events.cut(w.events.synced)
	w.judge.forget()
	return true
}

// spoil damages the newest snapshot, or puts one of another log in its place.
func (w *world) spoil() bool {
	if len(w.snapshots) == 0 {
		return false
	}
	s := &w.snapshots[len(w.snapshots)-1]
	if w.rng.IntN(2) == 0 {
		s.bytes = append([]byte(nil), s.bytes...)
		s.bytes[w.rng.IntN(len(s.bytes))] ^= 1 << w.rng.IntN(8)
		return true
	}
	s.mark.Position.Log = "another"
	return true
}
