// Package check is the oracle of the tests: it folds the log in the simplest way, with plain maps, and checks it against
// the promises and against the read tables. It shares no state or rule with the lane, the scheduler or the projector, so
// that their errors cannot cancel out: only the lines and their table (domain/wire).
//
//	SCRIP_EVT_* ──┬── Log, CatchUp ──> Fold ──┬──> Violations   (promises 1–4, order of commands)
//	SCRIP_RMD_* ──┘                           ├──> Tally        (set = fired + cancelled + dropped + pending; published)
//	                                          └──> Tables ──> differences to schema scrip (promise 5)
//
// It is sized for some millions of reminders: one entry each, hashes for ids, rows compared as they are read.
//
// Owner: one goroutine per Fold. All state is in memory.
package check
