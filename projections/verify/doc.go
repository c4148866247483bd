// Package verify compares the read tables with the log that they were filled from.
//
//	live tables ── snapshot at checkpoint P ──┐
//	                                          ├── digest per table and campaign ──> those that differ: rows, columns
//	log up to P ── rebuild ──> scrip_scratch ─┘
//
// A rebuild into a scratch schema makes the expected rows, with the code that fills the live tables; so verification
// detects damage to rows and checkpoints, not an error in the fold (tests compare that with naive models). The live
// tables are read in one REPEATABLE READ snapshot and are only written by a repair.
//
// Owner: one rebuild.Session, whose lock excludes rebuilds and other verifications. A crash leaves the scratch schema,
// which the next session drops. A repair is one transaction.
package verify
