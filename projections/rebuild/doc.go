// Package rebuild fills new read tables from the log beside those in use, and exchanges them.
//
//	SCRIP_EVT_<lane> ──Reader──> decode ──> tables.Apply ──> schema scrip_next      COPY, lanes in parallel, few indexes
//	                                                              │
//	      indexes and keys ── catch up with the live tables ── compare digests      live tables remain in use
//	                                                              │
//	      one transaction: lock out the projector's writes, catch up for the last time,
//	                       scrip ──> scrip_previous, scrip_next ──> scrip           --undo exchanges them back
//
// It uses the projector's code from an empty start: only tables.Apply changes rows, in transactions that also move a
// checkpoint. Indexes are created later, when a query needs them, because they make loading slow.
//
// The live projector detects an exchange by the generation in its checkpoint (see schema, migration 6): a transaction
// that it began on the old tables cannot commit on the new ones, and it then continues at the new checkpoint. No event
// is applied twice or missed.
//
// Opening a session migrates nothing: tables of another version belong to a projector of that version.
//
// Owner: a Session owns the rebuilds of one database, by an advisory lock on its own connection; a Shadow owns its
// schema. Each is used by the goroutine that created it.
//
// A crash before the exchange leaves the live tables untouched and a schema scrip_next, which the next Open drops. The
// exchange is one transaction. After a crash that follows it, dependents that were not carried over yet are named by
// the next rebuild and by --drop-previous.
package rebuild
