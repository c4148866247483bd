// Package check folds a log with the oracle of the tests (domain/oracle), and adds what only its messages show: their order,
// and whether SCRIP_RMD has each fired reminder once.
//
//	SCRIP_EVT_* ──┬── Log, CatchUp ──> Fold ──┬──> Violations   (promises 1–4, order of commands)
//	SCRIP_RMD_* ──┘                           ├──> Tally        (set = fired + cancelled + dropped + pending; published)
//	                                          └──> Tables ──> differences to schema scrip (promise 5)
//
// Owner: one goroutine per Fold. All state is in memory.
package check
