// Package server is a running scrip: it puts the parts together, starts them in order and stops them the other way round.
//
//	start ───────────────────────────────────────────────────────────────────────────────> stop goes back
//	data directory ─ HTTP ─ NATS ─ the log and its key ─ PostgreSQL ─ lanes ─ projector ─ API ─ scrip.json
//	lock, format     health  embedded or --nats          private or     with their   fills       answers
//	                 first                               --postgres     schedulers   tables      requests
//
// Each part is an actor of a group: when one ends, all are stopped, the last one started first. So requests stop coming
// before the lanes do, and the lanes stop writing before NATS is shut.
//
// Owner: Run, and through it whoever called it.
//
// What a crash does: everything that matters is in the log. The next server on the data directory finds a lock that the
// kernel dropped, a stale scrip.json that it removes, and perhaps a PostgreSQL that it stops or takes over.
package server
