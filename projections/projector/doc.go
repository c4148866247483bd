// Package projector keeps the read tables current with the log.
//
//	         one per database: advisory lock ──> schema.Ensure ──> lanes, in parallel
//	                                                            │
//	SCRIP_EVT_<lane> ──Reader──> fill.Batch: whole messages ────┤
//	                                                            v
//	  BEGIN ── advance checkpoint, fenced by its old position ── tables.Apply ── COMMIT       fill.Tables
//
// Owner: Run owns the lock's connection and starts a goroutine per lane; a lane owns its reader and its batch. Run
// returns when all of them have ended.
//
// What a crash or a failure does:
//
//   - This process dies in a transaction: PostgreSQL rolls it back; the next start continues at the unchanged checkpoint.
//   - The connection breaks in COMMIT: the result is unknown until the lane has read its checkpoint again.
//   - PostgreSQL dies: synchronous_commit is off, so the last commits may be lost, rows and checkpoint alike. As above.
//   - PostgreSQL is unavailable: lanes retry, also at start, and catch up. Nothing else in scrip waits for them.
//   - A second projector: waits for the lock. If two run nevertheless (a connection taken for dead), the checkpoint
//     is the fence: it advances only from the position that the same projector committed last.
//   - The log lost its tail or is another one: the lane stops with an error that names the next command.
//   - Schema scrip is dropped: it is created again and filled from the first message, by the same Apply.
//   - A line cannot be applied: it is stored in dead_letter, and the lane continues.
package projector
