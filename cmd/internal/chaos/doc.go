// Package chaos does to the real binary, under load and in the order of chance, what it will meet: kill -9, an owner
// stopped in its tracks while another takes over, a store that is full, PostgreSQL away, commands published twice, a
// replicated log that loses its leader and a node.
//
//	one server, embedded NATS ──┐                   ┌── every answer in the log? every log rule kept? tables equal?
//	two servers, three nodes ───┼── load + faults ──┤
//	                            └── a counter each ─┴── did each fault really happen?
//
// `make chaos` runs it for ten minutes and prints its seed; as part of `make test` each fault happens once.
package chaos
