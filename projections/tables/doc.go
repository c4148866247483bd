// Package tables folds event lines into the read tables. It is the one way rows change: live, catching up after an
// outage, and when dropped tables are filled again from the first message.
//
//	lines ──Read──> events ──┐
//	                         v
//	    load what they touch (2 queries) ──> fold in memory ──> write what changed (COPY new, UPDATE … FROM unnest)
//	                                             │
//	                                             └──> lines that do not fit: dead_letter, and on
//
// Everything happens in the caller's transaction, together with his checkpoint, so a crash anywhere leaves rows and
// checkpoint as they were before the batch.
//
// Rows do not depend on where batches are cut. Two things make that so: rows are folded one event after the other, as
// the log has them; and counts of coupons are kept as sums that may be added up in any order (see places.go). Times in
// rows come from the log, never from a clock.
//
// Owner: one goroutine per lane. Lanes touch different rows, because a campaign lives on one lane and what may name a
// foreign campaign has the lane in its key.
package tables
