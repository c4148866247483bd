// Package reminder keeps the pending reminders of a campaign: set, cancelled, moved, found when due, fired.
//
// The lane and the scheduler hold one [Subscriptions] per campaign each and fold the same events into it, so both know
// the same reminders as pending.
//
// Owner: one goroutine per [Subscriptions]; a [FrozenSubscriptions] may be read by another. A crash loses nothing: the
// state is a fold of the event log.
package reminder
