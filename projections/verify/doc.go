// Package verify compares the read tables with the log they were filled from.
//
//	live tables ── snapshot at checkpoint P ──┐
//	                                          ├── digest per table and campaign ──> those that differ: rows, columns
//	log up to P ── rebuild ──> scrip_scratch ─┘
//
// What the log says is made by a rebuild into a scratch schema, by the same code that fills the live tables; so what is
// found is damage to rows and checkpoints, not an error in the fold itself (tests hold that against naive models). The
// live tables are read in one REPEATABLE READ snapshot and nothing is written to them, unless a repair is asked for.
//
// Owner: one rebuild.Session, whose lock keeps rebuilds and other verifications away. A crash leaves the scratch schema,
// which the next one drops. A repair is one transaction: it happened or it did not.
package verify
