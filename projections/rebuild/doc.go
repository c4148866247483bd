// Package rebuild fills new read tables from the log beside those in use, and exchanges them, or compares them with
// those in use.
//
//	SCRIP_EVT_<lane> ──fill.Batch──> parse ──> fill.Tables ──> schema scrip_next    COPY, lanes in parallel, few indexes
//	                                                              │
//	      indexes and keys ── catch up with the live tables ── compare digests      live tables remain in use
//	                                                              │
//	      one transaction: lock out the projector's writes, catch up for the last time,
//	                       scrip ──> scrip_previous, scrip_next ──> scrip           --undo exchanges them back
//
//	live tables at checkpoint P ──────────┐
//	                                      ├── one snapshot: digest per table and campaign ──> those that differ: rows, columns
//	log up to P ──────────> scrip_scratch ┘                                     Verify; a repair copies campaigns
//
// Read rebuild.go first: it has the phases of a rebuild in their order. loader.go fills the tables, indexes.go creates indexes
// late, exchange.go makes the tables the live ones, and dependents.go keeps what others built on them. session.go has the lock,
// room.go what a rebuild shares with live work. verify.go compares, repair.go copies.
//
// It uses the projector's code from an empty start: only tables.Apply changes rows, in transactions that also move a
// checkpoint. Indexes are created later, when a query needs them, because they make loading slow.
//
// The live projector detects an exchange by the generation in its checkpoint (see schema/tables.sql): a transaction
// that it opened on the old tables cannot commit on the new ones, and it then continues at the new checkpoint. No event
// is applied twice or missed.
//
// A verification makes the expected rows with the code that fills the live tables; so it detects damage to rows and
// checkpoints, not an error in the fold (tests compare that with naive models). Both are read in one
// REPEATABLE READ snapshot, and the live tables are only written by a repair, which is one transaction.
//
// Owner: a Session owns the rebuilds of one database, by an advisory lock on its own connection; a shadow owns its
// schema. Each is used by the goroutine that created it.
//
// A crash before the exchange, or in a verification, leaves the live tables untouched and a schema scrip_next or
// scrip_scratch, which the next Open drops. The exchange is one transaction. After a crash that follows it, dependents
// that were not carried over yet are named by the next rebuild and by --drop-previous.
package rebuild
