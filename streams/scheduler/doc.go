// Package scheduler makes time pass in a lane: it asks for what has come due, and tells whom a fired reminder is for.
//
//	SCRIP_EVT_<lane> ──fold──> book ──────> due? ──ask: expire, remind_due──> scrip.lane.<lane>.due ──> lane
//	       ^                    │                                                                        │
//	       │                    └─ reminders.due ──expand──> scrip.rmd.<lane>, 500 customers a message   │
//	       └──────────────── coupons.expired, reminders.due ────────────────────────────────────────────┘
//
// The lane decides; the scheduler only asks. Expiry is a predicate of every redeem, so a late ask makes no coupon live
// longer, and a reminder fires when the lane's event says so, so a repeated ask fires nothing twice. Asking is therefore
// fire and forget: what is still due in the book some seconds later is asked for again.
//
// The book follows the event stream and nothing else. It knows instants, not coupons: waking up looks at the campaigns
// whose next instant has come, and one ask covers all that falls at it, one coupon or ten million.
//
// Owner: the goroutine in Run, which runs under the lane's lease. It owns everything here; publishing overlaps with
// folding only inside the reminder stream's pipeline.
//
// What a crash does: the book is read from its last snapshot, or replayed from the first event. The fan-out goes on
// behind the last message of the reminder stream, which names the event line and subscription it reached. Asks on the
// way are forgotten and asked again. Of two schedulers of one lane, the reminder stream's fence stops one; asks of both
// do no harm.
package scheduler
