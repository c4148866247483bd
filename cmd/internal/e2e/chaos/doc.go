// Package chaos injects faults into the real binary, under load and in random order: kill -9, an owner stopped (SIGSTOP)
// while another takes over, a full store, PostgreSQL down, a replicated log that loses its leader and a node.
//
//	one server, embedded NATS ──┐                   ┌── every answer in the log? every log rule kept? tables equal?
//	two servers, three nodes ───┴── load + faults ──┤
//	                                                └── was work due during each fault?
//
// In addition to the load there are reminders: for each kind of fault a burst is moved so that it becomes due, with its
// coupons, during the fault; a constant low rate is set and becomes due all the time; some are cancelled, in time or late.
// At the end the log must have set = fired + cancelled + dropped + pending, and SCRIP_RMD each fired reminder once.
//
// A third setup is a NATS cluster whose nodes are separate processes, with two servers on it. Nodes and servers are killed,
// stopped (SIGSTOP) and cut off, also in one direction, while callers send requests at a low rate:
//
//	callers ── links ──┐
//	server 0 ── links ─┼── node 0 ═ links ═ node 1 ═ links ═ node 2     a link that is cut drops what is sent, without a FIN
//	server 1 ── links ─┘
//
// With -chaos.faults it measures for how long a lane did not answer, during each fault and after its end; -chaos.kind selects
// kinds. Callers wait for their answers, so one lane that does not answer soon stops them all.
//
// `make test` has a short run: two faults of one server with two thousand reminders. `make soak` has the long ones
//
//	(-chaos.for, -chaos.faults, -chaos.reminders), and prints the seed (-chaos.seed).
package chaos
