// Package delivery keeps two tables current: how far push senders and webhooks are, and what they could not deliver.
//
//	SCRIP_PUSH, SCRIP_PUSH_WAIT, the lanes' streams ── push.Positions ──> scrip_meta.push_audience
//	SCRIP_PUSH_DEAD ────────────────────────────────── push.Letters… ───> scrip_meta.push_dead_letter
//
// The truth is in NATS. The tables are a copy, late by the pause between rounds, and are no fold of the log: a rebuild does not
// touch them, digests do not cover them, and if they are emptied the next start fills them. A dead letter that is delivered,
// retried or removed from its stream leaves the table in the next round, and its customers with it.
//
// Owner: the goroutine that runs Keeper.Run. Every server with the role projector has one; a round takes a lock in its
// transaction, and a server that does not get it leaves the round to the other.
//
// What a crash does: a batch is one transaction, so it is in the tables or not; the next owner reads all letters again and
// writes those that differ.
package delivery
