// Package sim tries the protocol of a lane in a world made of chance: no server, no goroutine, no real time, one seed.
//
//	clients ──┐                                ┌── answers ──> judge: in the log? the same as before? refused and yet done?
//	          ├── network: packets in any order, lost, late, twice
//	owners ───┘        │                       └── events ───> judge: one holder, contiguous, in time, never too late
//	   (protocol.Owner, the real one)
//	                   └──> command store, event store with its fence, snapshots: trimmed, restored, losing their tail
//
// In each step chance picks one thing that happens: a packet arrives, vanishes or is doubled; an owner does the next
// thing it can do, is stopped in its tracks, woken, killed, started; a clock jumps; a store is put back to an older
// copy; a store elects a leader, and until it has one, copies answer that lag. After each step the invariants are
// checked again. A seed says everything that happens:
//
//	go test ./streams/lane/sim -run TestSimulation -sim.seed=17 -sim.steps=1000 -v
//
// What proves that the judge can see is [TestPlantedBugs]: worlds in which one rule of the protocol is broken.
//
// The package holds tests only.
package sim
