// Package check folds the log the naive way, with clear names and plain maps, and holds it against the promises and
// against the read tables. It shares no state or rule with the lane, the scheduler or the projector, which are checked
// by it: only the lines and their table (domain/wire).
//
//	SCRIP_EVT_* ──┬── Log, CatchUp ──> Fold ──┬──> Violations   (promises 1–4, order of commands)
//	SCRIP_RMD_* ──┘                           ├──> Tally        (set = fired + cancelled + dropped + pending; told)
//	                                          └──> Tables ──> differences to schema scrip (promise 5)
//
// It is sized for some millions of reminders: one entry each, hashes for ids, rows compared as they stream by.
//
// Owner: one goroutine per Fold. Nothing is kept; a crash leaves nothing.
package check
