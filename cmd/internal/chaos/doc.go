// Package chaos does to the real binary, under load and in the order of chance, what it will meet: kill -9, an owner
// stopped in its tracks while another takes over, a store that is full, PostgreSQL away, commands published twice, a
// replicated log that loses its leader and a node.
//
//	one server, embedded NATS ──┐                   ┌── every answer in the log? every log rule kept? tables equal?
//	two servers, three nodes ───┼── load + faults ──┤
//	                            └── a counter each ─┴── did each fault really happen?
//
// Beside the load, a crowd wants to be reminded: for each kind of fault a burst is moved so that it falls due, with its
// coupons, while the fault reigns; a trickle is set and falls due all the time; some cancel, too late or not. At the end
// the log says whether set = fired + cancelled + dropped + pending, and SCRIP_RMD whether each that fired is told once.
//
// `make chaos` runs it for ten minutes with a million reminders in each world, and prints its seed; as part of `make test`
// each fault happens once, with some thousand (-chaos.for, -chaos.reminders, -chaos.seed).
package chaos
