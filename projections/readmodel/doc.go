// Package readmodel answers what people ask of the read tables: which lines were refused, what happened to a coupon or a
// customer, and how far deliveries are.
//
// Letters lists lines that could not be parsed or applied, and stores what operators did about them:
//
//	command.rejected ──> scrip.dead_letter <── an event line the tables refuse
//	                            │
//	                            ├──> open, until an operator acts ──> scrip_meta.dead_letter: retried, discarded
//	                            └──> the complete line, from its stream
//
// Table scrip.dead_letter is a fold of the log like all of schema scrip: after a rebuild its rows are the same. What
// operators did is not, so it is stored in schema scrip_meta, by the position of the dead letter's event.
//
// History returns what happened to a coupon or a customer and which commands caused it, newest first, one page per call:
//
//	coupon_row ───┐
//	redemption ───┤
//	coupon_event ─┼──> a page of entries ──> their messages in SCRIP_EVT_<lane> ──> ids of commands
//	expiry_event ─┤    (position: lane, sequence, line)
//	reminder ─────┘
//
// Lanes have only the current state of a coupon; its holders, uses and orders over time are in the tables only. Pages
// are as of the checkpoints, and may lag. The tables store the position of each event but not the id
// of its command, which would make each coupon a fifth larger: a page reads the ids from the log.
//
// Keeper keeps two tables current, how far push senders and webhooks are and what they could not deliver:
//
//	SCRIP_PUSH, SCRIP_PUSH_WAIT, the lanes' streams ── push.Positions ──> scrip_meta.push_audience
//	SCRIP_PUSH_DEAD ────────────────────────────────── push.Letters… ───> scrip_meta.push_dead_letter
//
// The truth is in NATS. These tables are a copy, late by the pause between rounds, and are no fold of the log: a rebuild does
// not touch them, digests do not cover them, and if they are emptied the next start fills them. A dead letter that is
// delivered, retried or removed from its stream leaves the table in the next round, and its customers with it.
//
// Owner: Letters and History have no state. A Keeper belongs to the goroutine that runs Run. Every server with the role
// projector has one, and one of them at a time has a round, in table scrip_meta.push_round: NATS is read outside of transactions.
//
// What a crash does: between retrying a command line and recording that, the dead letter stays open, and the next retry has
// the same id and is deduplicated. A page of history is lost with its reply. A Keeper's batch is one transaction, so it is
// in the tables or not; a minute after its round began the next owner reads all letters again and writes those that differ.
package readmodel
