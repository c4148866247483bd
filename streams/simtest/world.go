// Package simtest is the kernel of simulations: worlds made of chance, with no server, no goroutine, no real time, and one
// seed that determines all of it.
//
//	Suite ──seeds──> Sim: a World with acts of its own ──step: one act of chance──> look: is a promise broken?
//	                       ├─ network: packets in any order, lost, twice                ──after the last step──> heal
//	                       └─ Stream: a fence, trimmed, restored, losing its tail
//
// streams/lane/sim simulates owners of a lane, streams/scheduler the schedulers of one. A seed determines the run:
//
//	go test ./streams/lane/sim -run TestSimulation -sim.seed=17 -sim.steps=1000 -v
//
// What proves that a judge detects errors are planted bugs: worlds in which one rule is broken.
//
// Owner: the test. Nothing is stored.
package simtest

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// World is what all worlds have. One embeds it and adds its acts.
type World struct {
	Seed  uint64
	Rng   *rand.Rand
	Now   time.Time
	Aside map[string]bool // kinds of violations that are not looked at, to see whether others find the same
	Found *Violation      // the first

	acts    []act
	network []packet
	counts  map[string]int // what really happened
	notes   []string
	steps   int
}

// Violation is a broken promise. Kind is one of a few names.
type Violation struct{ Kind, Text string }

func (v *Violation) String() string { return v.Kind + ": " + v.Text }

// act is what may happen in a step.
type act struct {
	name   string
	weight int
	do     func() bool
}

// packet is something on its way. It may arrive never, once, or more often, in any order.
type packet struct {
	what   string
	arrive func()
}

// Sim is a world in which steps happen.
type Sim interface {
	Kernel() *World
	// Look is called after each step.
	Look()
	// Heal ends all trouble, lets what is left to do be done, and looks at what is left.
	Heal()
	// Close releases what the world holds.
	Close()
}

// New makes a world in which only the seed decides.
func New(seed uint64) *World {
	return &World{Seed: seed, Rng: rand.New(rand.NewPCG(seed, 1)), Now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), counts: map[string]int{}}
}

// Kernel is the world itself.
func (w *World) Kernel() *World { return w }

// Act adds what may happen in a step, and how often beside the others. do returns false if it did not apply.
func (w *World) Act(name string, weight int, do func() bool) {
	w.acts = append(w.acts, act{name, weight, do})
}

// Sometimes is a weight that differs from world to world: some worlds know only some kinds of trouble, so that one kind does
// not hide another.
func (w *World) Sometimes(weight int) int { return weight * []int{0, 1, 1, 4}[w.Rng.IntN(4)] }

// Count counts what came about.
func (w *World) Count(what string, n int) {
	if n > 0 {
		w.counts[what] += n
	}
}

// notes that are kept.
const mostNotes = 200

// Note records what happened, for the report of a violation.
func (w *World) Note(format string, args ...any) {
	if len(w.notes) > mostNotes {
		w.notes = append(w.notes[:0], w.notes[mostNotes/2:]...)
	}
	w.notes = append(w.notes, fmt.Sprintf("%5d %s ", w.steps, w.Now.Format("15:04:05.000000"))+fmt.Sprintf(format, args...))
}

// Violate records the first violation of a kind that is looked at.
func (w *World) Violate(kind, format string, args ...any) {
	if w.Found == nil && !w.Aside[kind] {
		w.Found = &Violation{kind, fmt.Sprintf(format, args...)}
	}
}

// Send puts something on its way.
func (w *World) Send(what string, arrive func()) { w.network = append(w.network, packet{what, arrive}) }

// InFlight is how many packets are on their way.
func (w *World) InFlight() int { return len(w.network) }

// Blackout loses all packets.
func (w *World) Blackout() { w.network = nil }

func (w *World) take(i int) packet {
	p := w.network[i]
	w.network = append(w.network[:i:i], w.network[i+1:]...)
	return p
}

// ArriveNext delivers the oldest packet.
func (w *World) ArriveNext() { w.take(0).arrive() }

// Arrive delivers a packet, more often than not an old one.
func (w *World) Arrive() bool {
	if len(w.network) == 0 {
		return false
	}
	p := w.take(min(w.Rng.IntN(len(w.network)), w.Rng.IntN(len(w.network))))
	w.Note("arrives: %s", p.what)
	p.arrive()
	return true
}

// Lose drops a packet.
func (w *World) Lose() bool {
	if len(w.network) == 0 {
		return false
	}
	w.Note("lost: %s", w.take(w.Rng.IntN(len(w.network))).what)
	return true
}

// Double puts a packet on its way once more.
func (w *World) Double() bool {
	if len(w.network) == 0 {
		return false
	}
	w.network = append(w.network, w.network[w.Rng.IntN(len(w.network))])
	return true
}

// run lets so many steps happen, then heals the world.
func run(s Sim, steps int) (found *Violation) {
	w := s.Kernel()
	defer func() {
		if r := recover(); r != nil && w.Found == nil {
			w.Found = &Violation{"panic", fmt.Sprintf("%v\n%s", r, debug.Stack())}
		}
		s.Close()
		found = w.Found
	}()
	total := 0
	for _, a := range w.acts {
		total += a.weight
	}
	for w.steps < steps && w.Found == nil {
		w.steps++
		at := w.Rng.IntN(total)
		for _, a := range w.acts {
			if at -= a.weight; at < 0 {
				if a.do() {
					w.Count(a.name, 1)
				}
				break
			}
		}
		s.Look()
	}
	if w.Found == nil {
		s.Heal()
	}
	return w.Found
}
