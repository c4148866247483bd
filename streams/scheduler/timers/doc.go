// Package timers is the state of a lane's scheduler: for every campaign the instants at which its coupons expire, and the
// reminders that are pending, with their customers.
//
//	SCRIP_EVT_<lane> ──Fold──> Timers ──┬─ order: campaigns by the instant at which the planner must look at them
//	                                    ├─ Campaign: instants of expiry · pending reminders by due instant
//	                                    └─ customers, on disk ──> Fired, when a reminders.due event is folded
//	                                       Freeze ──> Frozen ──Write──> snapshot ──Read──> Timers
//
// Timers know instants, not coupons: whether a coupon has an expiry of its own is one bit. What is due is looked up in a
// campaign by key, instant and kind, and costs a search, not a walk.
//
// Owner: one goroutine, that of the scheduler's run. What Freeze returns may be written by another.
//
// What a crash does: the timers are read from their last snapshot, or folded from the first event. The files of customers
// have no name and are gone; reading the snapshot makes others.
package timers
