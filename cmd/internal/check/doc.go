// Package check folds the log the naive way, with clear names and plain maps, and holds it against the promises and
// against the read tables. It shares no state or rule with the lane or the projector: it is what they are checked by.
//
//	SCRIP_EVT_* ── Log ──> Fold ──┬──> Violations   (promises 1–4, order of commands)
//	                              └──> Tables ──> differences to schema scrip (promise 5)
//
// Owner: one goroutine per Fold. Nothing is kept; a crash leaves nothing.
package check
