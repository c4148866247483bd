// Package rebuild fills new read tables from the log beside those in use, and exchanges them, or compares them with
// those in use.
//
//	SCRIP_EVT_<lane> ──fill.Batch──> parse ──> fill.Tables ──> schema scrip_<n>     COPY, lanes in parallel, segments
//	                                                              │
//	      seal the rest ───── catch up with the live tables ── compare digests      live tables remain in use
//	                                                              │
//	      one transaction: lock out the projector's writes, catch up for the last time,
//	                       views of schema scrip ──> scrip_<n>                      --undo exchanges them back
//	      prevented: scrip_<n> is kept, and the next rebuild goes on with it
//
//	live tables at checkpoint P ──────────┐
//	                                      ├── one snapshot: digest per table and campaign ──> those that differ: rows, columns
//	log up to P ──────────> scrip_<n> ────┘                                     Verify; a repair copies pieces
//
// Read rebuild.go first: it has the phases of a rebuild in their order. loader.go fills the tables, exchange.go makes them the
// live ones, kept.go goes on where that was prevented. session.go has the lock, room.go what a rebuild shares with live work.
// verify.go compares, repair.go replaces what differs.
//
// It uses the projector's code from an empty start: only tables.Apply changes rows, in transactions that also move a
// checkpoint.
//
// The live projector detects an exchange by the generation in its checkpoint (see schema/tables.sql): it commits no more to
// the old tables, and continues in the new ones at their checkpoint. No event is applied twice or missed.
//
// A verification makes the expected rows with the code that fills the live tables; so it detects damage to rows and
// checkpoints, not an error in the fold (tests compare that with naive models). Both are read in one
// REPEATABLE READ snapshot, and the live tables are only written by a repair, piece by piece, each in a transaction that holds its
// lane's checkpoint.
//
// Owner: a Session owns the rebuilds of one database, by an advisory lock on its own connection; a shadow owns its
// schema. Each is used by the goroutine that created it.
//
// A crash before the exchange, or in a verification, leaves the live tables untouched and a schema of others, which the next
// Open drops; tables that are filled are marked as such, and the next Rebuild goes on with them. The exchange is one transaction. A
// crash in a repair leaves whole pieces repaired.
package rebuild
