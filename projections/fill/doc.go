// Package fill reads a lane of the log in batches and fills tables with them.
//
//	eventlog.Reader ── Batch.Fill ──> whole messages ── Parse ──> lines ── Tables.Apply ──> BEGIN
//	                                                                                        advance checkpoint, fenced
//	                                                                                        tables.Apply
//	                                                                                        COMMIT
//
// The projector fills the live tables with it, a rebuild the shadow tables; a replay, which has other tables or none,
// uses Batch alone.
//
// Owner: the goroutine of a lane. A Batch and a Tables belong to one lane.
//
// What a crash does: rows and checkpoint are one transaction, so both are there or neither. If the reply to a COMMIT is
// lost, Load reads from the checkpoint whether it took effect.
package fill
