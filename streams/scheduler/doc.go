// Package scheduler turns due instants of a lane into commands, and publishes the reminders that fire.
//
//	SCRIP_EVT_<lane> ──fold──> timers ──due──> planner ──expire, remind_due──> scrip.lane.<lane>.due ──> lane
//	       ^                    │             8 : 3 : 1                                                    │
//	       │                    └─ reminders.due ──fanout, at its pace──> SCRIP_RMD_<lane>                 │
//	       └──────────────── coupons.expired, reminders.due ───────────────────────────────────────────────┘
//
// The lane decides; the scheduler only requests. Expiry is a predicate of every redeem, so a late request makes no coupon
// live longer, and a reminder fires when the lane's event is on the log, so a repeated request fires nothing twice. Requests
// are therefore published without waiting for an answer, and repeated while what they are for is still due.
//
// The timers follow the event stream and nothing else. They know instants, not coupons: waking up looks at the campaigns
// whose next instant has come, and one request covers all coupons that expire at it, one or ten million.
//
// # Much due at once
//
// Reminders are requested in chunks of 25,000 customers at most, and 100,000 at most are requested or fired and not on the
// reminder stream: the lane decides one chunk while the fan-out publishes another. Expiries of at most 2,000 campaigns are in
// flight. What is due beyond that waits, under one rule for expiries and for reminders apart, so that neither delays the
// other:
//
//   - A priority that has credit left goes, the higher one first. Within it campaigns share alike: the one that has had least
//     goes first, and what the lane will drop goes last.
//   - When none that waits has credit, a round starts: high gets eight parts, normal three, low one. An expiry costs 1,
//     reminders cost their customers.
//
// So while all wait they share 8 : 3 : 1. Each gets its part of every round, and is delayed by a few rounds of the others at
// most (270,000 customers, where low has just had a full chunk). Without competition everything goes at once.
//
// The fan-out keeps to the rate that operators set. While commands are being answered it works a share of the time only, from
// all of it down to a sixteenth, halved whenever an acknowledgement or an answer of the lane takes more than twice as long
// as it does without a fan-out. Chunks are smaller then.
//
// What operators pause is not requested. No timer runs for it, and its age is not counted. When the pause ends it is requested at
// once, and the lane drops what is too late. A request that has waited for the operators' rate carries the instant
// since when (ready_at), because that wait is not lateness. While the lane decides nothing, nothing is requested.
//
// # Owner and crashes
//
// Owner: the goroutine in Run, which runs under the lane's lease. It owns everything here, and waits in one place for all
// that may come next: an event, a due instant, an acknowledgement, the end of a rest, other settings. A round of requests is
// published beside it, one at a time.
//
// What a crash does: the timers are read from their last snapshot, or replayed from the first event. The fan-out goes on
// after the last message of the reminder stream. Requests in flight, and what waits, are forgotten and found due again. Of
// two schedulers of one lane, the reminder stream's fence stops one; requests of both do no harm.
package scheduler
