// Package rebuild fills the read tables anew from the log, beside the ones in use, and puts them in their place.
//
//	SCRIP_EVT_<lane> ──Reader──> decode ──> tables.Apply ──> schema scrip_next      COPY, lanes in parallel, few indexes
//	                                                              │
//	      indexes and keys ── catch up with the live tables ── compare digests      live tables serve and are kept up
//	                                                              │
//	      one transaction: lock out the projector's writes, catch up for the last time,
//	                       scrip ──> scrip_previous, scrip_next ──> scrip           --undo exchanges them again
//
// It is the normal path with another starting point: rows change by tables.Apply and nothing else, in the same batches
// and with the same checkpoints as live. What is left out is what costs: indexes, until something needs them.
//
// The live projector notices by the generation in its checkpoint (see schema, migration 6): what it has begun under the
// old tables it cannot commit under the new ones, and it reads anew where it is. Nothing is applied twice or missed.
//
// Opening a session migrates nothing: tables of another version belong to a projector of that version.
//
// Owner: a Session owns one database's rebuilds, by an advisory lock on a connection of its own; a Shadow owns its
// schema. Both belong to the goroutine that made them.
//
// A crash before the exchange leaves the live tables untouched and a schema scrip_next, which the next Open drops. The
// exchange is one transaction, so it happened or it did not. A crash after it leaves nothing to do.
package rebuild
