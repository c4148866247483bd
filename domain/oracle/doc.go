// Package oracle is the oracle of the tests: it folds events in the simplest way, with plain maps, and checks them against
// the promises. It shares no state or rule with the lane, the scheduler or the projector, so that their errors cannot
// cancel out: only the lines and their table (domain/wire).
//
//	lines ──> Fold ──┬──> Violations   (promises 1–4)
//	                 └──> Tally        (set = fired + cancelled + dropped + pending)
//
// cmd/internal/check reads it from a log, projections/compare compares the read tables with it.
//
// It is sized for some millions of reminders: one entry each, hashes for ids.
//
// Owner: one goroutine per Fold. All state is in memory.
package oracle
