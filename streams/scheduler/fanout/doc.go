// Package fanout publishes the reminders of a lane that fired: lists of customers on SCRIP_RMD_<lane>.
//
//	reminders.due ──Add──> Queue ──Next──> message of up to 5,000 customers ──> in flight ──acknowledged──> stored
//	 (event line, customers)   │                 ^            ^                   │
//	                           └ Reached: source │            │ Pace              └ failed: resolved, published again
//	                                             └ fence: the sequence and, on one copy, the ID of the message before
//
// Each message names in its source the event line and the number of its last customer. Together with the fence that is all
// the memory there is: the next fan-out reads the last message and goes on after its source, so that every customer is on
// the stream once.
//
// Owner: the goroutine that runs the scheduler of the lane. Nothing here waits but Drain.
//
// What a crash does: messages in flight are stored, or not, each as a whole. The next scheduler folds the events from its
// snapshot on and passes over what the source of the last message covers.
package fanout
