// Package tables folds event lines into the read tables. All changes of rows use it: live, after an outage, and in a
// rebuild from the first message.
//
//	lines ──Read──> events ──┐
//	                         v
//	    load what they touch (2 queries) ──> fold in memory ──> write what changed (COPY new, UPDATE … FROM unnest)
//	                                             │
//	                                             └──> lines that cannot be applied: dead_letter
//
// Everything happens in the caller's transaction, together with its checkpoint, so after a crash rows and checkpoint
// are as before the batch.
//
// Rows do not depend on how the log is divided into batches, for two reasons: events are folded one by one in log
// order, and counts of coupons are sums of changes that can be added in any order (see tasks.go). Times in rows come
// from the log, never from a clock.
//
// Owner: one goroutine per lane. Lanes write different rows, because a campaign lives on one lane, and tables whose
// rows may name a campaign of another lane have the lane in their key.
package tables
