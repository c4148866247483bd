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
// A third world is a NATS cluster whose nodes are processes of their own, with two servers on it. Nodes and servers are killed,
// stopped (SIGSTOP) and cut off, also in one direction, while callers ask at a modest pace:
//
//	callers ── links ──┐
//	server 0 ── links ─┼── node 0 ═ links ═ node 1 ═ links ═ node 2     a link that is cut drops what is sent, without a FIN
//	server 1 ── links ─┘
//
// `make chaos-cluster` measures after each fault how long a lane was silent and how soon the usual rate is back, after its beginning
// and after its end; -chaos.kind picks kinds. A fault during which other work had half of the cores does not count, and is repeated. Elsewhere three kinds happen once, and nothing is measured. Callers wait for their answers, so one lane that is silent
// soon stops them all: the rate is that of the slowest lane.
//
// `make chaos` runs it for ten minutes with a million reminders in each world, and prints its seed; as part of `make test`
// each fault happens once, with some thousand (-chaos.for, -chaos.reminders, -chaos.seed).
package chaos
