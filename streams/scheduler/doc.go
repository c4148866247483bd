// Package scheduler makes time pass in a lane: it asks for what has come due, and tells whom a fired reminder is for.
//
//	SCRIP_EVT_<lane> ──fold──> book ──due──> dispatcher ──ask: expire, remind_due──> scrip.lane.<lane>.due ──> lane
//	       ^                    │                8:3:1                                                          │
//	       │                    └─ reminders.due ──fan, at its pace──> scrip.rmd.<lane>, 500 customers a message │
//	       └──────────────── coupons.expired, reminders.due ─────────────────────────────────────────────────────┘
//
// The lane decides; the scheduler only asks. Expiry is a predicate of every redeem, so a late ask makes no coupon live
// longer, and a reminder fires when the lane's event says so, so a repeated ask fires nothing twice. Asking is therefore
// fire and forget: what is still due in the book some seconds later is asked for again. While the lane decides nothing,
// nothing is asked for.
//
// The book follows the event stream and nothing else. It knows instants, not coupons: waking up looks at the campaigns
// whose next instant has come, and one ask covers all coupons that fall at it, one or ten million.
//
// # Much due at once
//
// Reminders are asked for in chunks of 25,000 customers at most, and 100,000 at most are asked for, or fired, and do not
// stand on the reminder stream: the lane decides one chunk while the fan-out publishes another. At most 2,000 campaigns'
// expiries are asked for and not announced. What is due beyond that waits, and goes by this rule, for expiries and for
// reminders each by itself, so that neither waits for the other:
//
//   - A campaign's priority that has credit left goes, the higher one first. Within it campaigns share alike: who has had
//     least goes first, and what the lane will drop goes last.
//   - When none that waits has credit, a round begins: high gets eight parts, normal three, low one. An expiry costs 1 of
//     it, reminders cost their customers.
//
// So while all wait they share 8 : 3 : 1; whoever waits gets its part of every round, and is never kept waiting by more
// than a few rounds of the others (270,000 customers, where low has just had a full chunk); and where nobody competes
// everything goes at once.
//
// The fan-out keeps to the rate that operators set. While people are being answered it works a share of the time only,
// from all of it down to a sixteenth, halved whenever an acknowledgement or an answer of the lane takes more than twice as
// long as it does without a fan-out. Asks are chunked the smaller, then.
//
// A campaign whose expiry or reminders operators pause is not asked for, wakes nobody and counts as nothing old. When the
// pause ends what it held back goes at once, and the lane drops what is of no use any more. An ask that has waited for the
// operators' rate says since when (ready_at), because that wait is not lateness.
//
// # Owner and crashes
//
// Owner: the goroutine in Run, which runs under the lane's lease. It owns everything here, and waits in one place for all
// that may come next: an event, a due instant, an acknowledgement, the end of a rest, other settings. A round of asks is
// published beside it, one at a time.
//
// What a crash does: the book is read from its last snapshot, or replayed from the first event. The fan-out goes on
// behind the last message of the reminder stream, which names the event line and subscription it reached. Asks on the
// way, and who waits for its turn, are forgotten and found due again. Of two schedulers of one lane, the reminder stream's
// fence stops one; asks of both do no harm.
package scheduler
