// Package projector keeps the read tables in step with the log.
//
//	         one per database: advisory lock ──> migrate ──> lanes, in parallel
//	                                                            │
//	SCRIP_EVT_<lane> ──Reader──> whole messages, what is there ─┤
//	                                                            v
//	  BEGIN ── advance checkpoint, if it is where I left it ── tables.Apply ── NOTIFY ── COMMIT
//
// Owner: Run owns the lock's connection and starts a goroutine per lane; a lane owns its reader and its batch. Whoever
// calls Run waits for it.
//
// What happens when something breaks:
//
//   - We die in a transaction: PostgreSQL rolls it back; the next start goes on from the checkpoint, which is as it was.
//   - The connection breaks in COMMIT: nobody knows whether it happened. The lane reads its checkpoint again; that says.
//   - PostgreSQL dies: synchronous_commit is off, so the last commits may be gone, rows and checkpoint alike. As above.
//   - PostgreSQL is away: lanes wait, at start too, and catch up. Nothing else in scrip waits for them.
//   - A second projector: waits for the lock. Should two run all the same (a connection thought dead), the checkpoint
//     fences: it only moves on from where its mover left it.
//   - The log lost its tail or is another one: the lane stops, says so and what to do, and never guesses.
//   - Somebody drops schema scrip: it is made anew and filled from the first message, by the same Apply.
//   - A line that nobody can apply: it is parked in dead_letter, and the lane goes on.
package projector
