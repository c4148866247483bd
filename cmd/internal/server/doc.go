// Package server is a running scrip: it connects the parts, starts them in order and stops them in reverse order.
//
//	start ───────────────────────────────────────────────────────────────────────────────> stop in reverse
//	data directory ─ HTTP ─ NATS ─ the log and its key ─ PostgreSQL ─ lanes ─ projector ─ API ─ scrip.json
//	lock, format     health  embedded or --nats          private or     with their   fills       answers
//	                 first                               --postgres     schedulers   tables      requests
//
// Each part is an actor of a group: when one ends, all are stopped, the last one started first. So requests end before
// the lanes stop, and the lanes stop writing before NATS is shut down.
//
// Owner: the caller of Run.
//
// If the data directory was moved or replaced there is no stop, which would write into another one: the process ends as in a crash.
//
// What a crash does: all state is in the log. The kernel releases the lock of the data directory. The next server on it
// removes a stale scrip.json, and stops or adopts a PostgreSQL that still runs.
package server
