// Package hold is the stage between fired reminders and the senders that holds reminders back for a person: it merges those that
// come close together, keeps the customer's quiet hours, and caps the messages of a day. Which of that, operators decide while
// servers run (settings push.merge, push.quiet, push.cap). While nothing of it is set, senders read the reminders themselves and
// nothing passes here.
//
//	SCRIP_RMD_<lane>, with Scrip-Hold ─┐
//	SCRIP_RMD_<lane>, with Scrip-Hold ─┴─> Stage ──┬─ shard: customer ─> person ─┬─ due ─> SCRIP_PUSH_OUT ──> senders
//	                                               └─ shard …                    └─ due again: quiet hours, or a full day
//
// A message of a lane says itself whether it goes through here (Scrip-Hold, from the settings when it was written), so a change of
// the settings loses and doubles nothing. While none is set, the stage looks once a minute only. Each reminder of such a message
// gets to SCRIP_PUSH_OUT once: to be delivered, merged into another one, or withheld, because it would be of no use any more when
// it may go. A customer's reminders get there in the order in which they fired.
//
// Customers are divided into shards by a hash, and each shard is folded by a goroutine. Shards are of this process only: their
// number may change between two messages.
//
// Owner: one server, by a lease; a second one that believes it has the lease is refused by the fence of SCRIP_PUSH_OUT. The state is
// some 150 bytes for each reminder that is held back, of one customer at most [mostOfOne].
//
// A crash loses the state and nothing else. What is held is what the lanes have and SCRIP_PUSH_OUT has not: the next owner reads
// both from the positions in the bucket [push.Bucket], which lag by five seconds. If those are lost or of another log, it reads both
// from their starts.
package hold
