// Package link simulates the network between two programs on one machine.
//
//	client ── Link.Addr() ──┬── gate ──> target
//	                        └── gate ──<
//
// A link that is cut drops what is sent, in one direction or both, without an end of the connection: as a cable that was
// pulled. Tests use it through streamtest; `make cluster` uses it for its command cut.
//
// Owner: who started it. A crash ends the link and the connections through it, on both sides.
package link
