// Package lane is the one sequential consumer of a lane: it reads commands in order, decides them, writes what came of
// it as one event message per step, and answers when that is durable.
//
//	SCRIP_CMD_<lane> ──intake──> step (decoded, decided) ──publish with fence──> SCRIP_EVT_<lane>
//	                               │        ^                     │
//	                               │        └── collects more while the write before it is in flight
//	                               └── answers wait ──────────────┴── acknowledged ──> Scrip-Reply inboxes
//
// Owner: [Lane.Run] is the only goroutine that touches the state. A lease brought us here, but a lease is a hint: what
// makes a second owner harmless is the fence. Every event message names the sequence it expects to follow, so of two
// owners only one can write; the other learns it from the refusal, drops what it decided and answers nothing.
//
// Where a lane goes on is written in the event log itself: each event message says which commands it covers. So a crash
//
//   - before the publish: nothing happened; the commands are read and decided again;
//   - after the publish, before the answer: the event log covers the commands; who asks again with the same id gets the
//     same answer from the state;
//   - in the middle of a snapshot: the one before it is used and the log replayed from there.
package lane
