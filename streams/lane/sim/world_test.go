package sim

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
	"github.com/seed-4a2410e3/scrip/streams/simtest"
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
	hasty        bool // a lane stops without checking whether it only lags
	wildClock    bool // lane time follows the stamps backwards
	anySnapshot  bool // snapshots are not held against the log
	anyCommands  bool // the command stream is not held against the events
	anyFollower  bool // bounds are believed although no leader gave them
	firstLook    bool // a contradiction is believed when it is seen first
}

// world is a lane and everything around it.
type world struct {
	*simtest.World
	bug     bug
	log     topology.Log
	lossy   bool          // sync interval: a power loss takes what was not synced
	skew    time.Duration // of the clock that stamps commands
	full    bool          // the event store takes nothing
	damaged bool          // a store lost something: a lane may stop

	commands, events store
	backups          [][2]simtest.Stream // commands, events
	snapshots        []snapshot
	processes        []*process
	crowd            *crowd
	judge            *judge
	takings          int
}

// Look holds what was written against the promises.
func (w *world) Look() { w.judge.look() }

// Close has nothing to release.
func (w *world) Close() {}

type snapshot struct {
	mark  protocol.Mark
	bytes []byte
}

// newWorld makes a world in which only the seed decides.
func newWorld(_ testing.TB, seed uint64, b bug) simtest.Sim {
	w := &world{World: simtest.New(seed), bug: b}
	w.commands.Name, w.events.Name = "commands", "events"
	w.log = topology.Log{UUID: logID, Lanes: 1, Format: topology.Format}.WithKey(laneOptions.Key)
	w.lossy = w.Rng.IntN(4) == 0
	w.judge = newJudge(w)
	w.crowd = newCrowd(w)
	for i := range 3 {
		w.processes = append(w.processes, &process{w: w, name: string(rune('A' + i)), phase: dead})
	}
	w.processes[0].phase = idle
	sometimes := w.Sometimes
	w.Act("packet arrives", 400, w.Arrive)
	w.Act("client sends a request", 120, w.crowd.issue)
	w.Act("client repeats a request", 60, w.crowd.repeat)
	w.Act("owner goes on", 400, w.goOn)
	w.Act("packet lost", sometimes(30), w.Lose)
	w.Act("packet doubled", sometimes(30), w.Double)
	w.Act("owner paused", sometimes(8), w.pause)
	w.Act("owner woken", 12, w.wake)
	w.Act("owner killed", sometimes(4), w.kill)
	w.Act("owner started", 10, w.start)
	w.Act("server clock jumps", sometimes(4), func() bool { w.skew = w.jump(w.skew); return true })
	w.Act("owner clock jumps", sometimes(4), func() bool { p := w.any(); p.skew = w.jump(p.skew); return true })
	w.Act("event store full", sometimes(3), func() bool { w.full = !w.full; return true })
	w.Act("foreign message", sometimes(2), w.foreign)
	w.Act("backup", 3, w.backup)
	w.Act("store restored", sometimes(1), w.restore)
	w.Act("commands trimmed from outside", sometimes(1), w.trim)
	w.Act("election of the commands", sometimes(6), func() bool { return w.elect(&w.commands) })
	w.Act("election of the events", sometimes(3), func() bool { return w.elect(&w.events) })
	w.Act("sync", 20, w.sync)
	w.Act("power loss", sometimes(2), w.powerLoss)
	w.Act("snapshot damaged or foreign", sometimes(3), w.spoil)
	return w
}

func (w *world) any() *process { return w.processes[w.Rng.IntN(len(w.processes))] }

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
	w.Note("%s is stopped in its tracks", p.name)
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
	w.Note("%s is killed", p.name)
	p.paused = false
	p.leave(dead)
	return true
}

func (w *world) start() bool {
	p := w.any()
	if p.phase != dead {
		return false
	}
	if p.rebase = w.Rng.IntN(4) == 0; p.rebase {
		w.Note("%s starts, with a rebase left in its start line", p.name)
	}
	return p.next()
}

// jump steps a clock, mostly by little, both ways.
func (w *world) jump(skew time.Duration) time.Duration {
	by := time.Duration(w.Rng.Int64N(int64(4 * time.Second)))
	if w.Rng.IntN(2) == 0 {
		by = -by
	}
	if skew += by; skew > 8*time.Second || skew < -8*time.Second {
		skew = 0
	}
	return skew
}

// write is the event store: the fence, and a disk that may be full before or after the write.
func (w *world) write(a eventlog.Attempt) (sequence uint64, ok bool) {
	if number, _ := w.events.Fence(a); !number && !w.bug.noFence {
		w.Count("write refused by the fence", 1)
		return 0, false
	}
	if w.full && w.Rng.IntN(2) == 0 {
		w.Count("write refused by the disk", 1)
		return 0, false
	}
	return w.events.Write(topology.Evt(0), a, w.Now.Add(w.skew), !w.lossy), !w.full
}

func (w *world) foreign() bool {
	covered := w.judge.covered
	h := eventlog.Header{Commands: [2]uint64{covered + 2, covered + 3}, CommandTime: w.Now, LaneTime: w.Now, Owner: "mallory"}.Encode()
	payload := []byte("I do not belong here")
	switch w.Rng.IntN(5) {
	case 0:
		h = nats.Header{}
	case 1: // as if of a newer version
		h.Set(topology.HeaderFormat, "3")
	case 2: // a step that was written once before
		if w.events.Last > 0 {
			old, err := w.events.Get(1 + w.Rng.Uint64N(w.events.Last))
			if err == nil && old.Header.Get(topology.HeaderSeal) != "" {
				h, payload = old.Header, old.Data
			}
		}
	case 3: // what would be the next step, with a seal of another log's key
		h = eventlog.Events(nil, 0).In(topology.Log{UUID: "other"}.WithKey(laneOptions.Key)).Sealer().Encode(
			eventlog.Header{Commands: [2]uint64{covered + 1, covered + 1}, CommandTime: w.Now, LaneTime: w.Now, Owner: "mallory"}, w.events.Last+1, payload)
	}
	w.events.Append(topology.Evt(0), h, payload, w.Now, !w.lossy)
	return true
}

func (w *world) backup() bool {
	w.backups = append(w.backups, [2]simtest.Stream{w.commands.Copy(), w.events.Copy()})
	return true
}

// restore puts one or both streams back. An operator stops the servers first.
func (w *world) restore() bool {
	if len(w.backups) == 0 {
		return false
	}
	w.blackout("restore")
	b := w.backups[w.Rng.IntN(len(w.backups))]
	which := w.Rng.IntN(3)
	if which != 0 {
		w.commands.Restore(b[0])
	}
	if which != 1 {
		w.events.Restore(b[1])
	}
	w.damaged = true
	w.judge.forget()
	return true
}

func (w *world) blackout(why string) {
	w.Note("%s: everything goes down", why)
	for _, p := range w.processes {
		p.paused = false
		p.leave(dead)
	}
	w.Blackout()
}

// trim is a program that purges undecided commands.
func (w *world) trim() bool {
	w.commands.Trim(w.commands.Last - min(w.commands.Last, uint64(w.Rng.IntN(3))))
	w.damaged = true
	w.judge.forget()
	return true
}

func (w *world) sync() bool {
	w.commands.Synced, w.events.Synced = w.commands.Last, w.events.Last
	return w.lossy
}

// powerLoss takes the machine with server and owners, and what is not on its disk.
func (w *world) powerLoss() bool {
	w.blackout("power loss")
	if !w.lossy {
		w.commands.Synced, w.events.Synced = w.commands.Last, w.events.Last
		return true
	}
	if w.commands.Synced < w.commands.Last || w.events.Synced < w.events.Last {
		w.Count("tail lost", 1)
		w.damaged = true
	}
	w.commands.Cut(w.commands.Synced)
	w.events.Cut(w.events.Synced)
	w.judge.forget()
	return true
}

// spoil damages the newest snapshot, or puts one of another log in its place.
func (w *world) spoil() bool {
	if len(w.snapshots) == 0 {
		return false
	}
	s := &w.snapshots[len(w.snapshots)-1]
	if w.Rng.IntN(2) == 0 {
		s.bytes = append([]byte(nil), s.bytes...)
		s.bytes[w.Rng.IntN(len(s.bytes))] ^= 1 << w.Rng.IntN(8)
		return true
	}
	s.mark.Position.Log = "another"
	return true
}
