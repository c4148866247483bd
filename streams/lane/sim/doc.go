// Package sim tests the protocol of a lane in a simulated world: no server, no goroutine, no real time, one seed.
//
//	clients ──┐                                ┌── answers ──> judge: in the log? the same as before? refused and yet done?
//	          ├── network: packets in any order, lost, late, twice
//	owners ───┘        │                       └── events ───> judge: one holder, contiguous, in time, never too late
//	   (protocol.Owner, the real one)
//	                   └──> command store, event store with its fence, snapshots: trimmed, restored, losing their tail
//
// In each step the generator picks one action: a packet arrives, is lost or duplicated; an owner does its next possible
// action, is paused, resumed, killed, started; a clock jumps; a store is restored to an older copy; a store elects a leader,
// and until it has one, copies answer that lag. After each step the invariants are checked. A seed determines the run:
//
//	go test ./streams/lane/sim -run TestSimulation -sim.seed=17 -sim.steps=1000 -v
//
// [TestPlantedBugs] proves that the judge detects errors: worlds in which one rule of the protocol is broken.
//
// The package holds tests only.
package sim
