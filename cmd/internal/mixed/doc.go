// Package mixed runs an older version of the program and this one on one log, and this one on what the older one left.
//
//	git archive 0417b2b ── go build ──> old ──┐
//	                                          ├── one log, under load
//	Main ── go build ──> new ─────────────────┘
//
// It has no code, only tests; nothing crashes here but the servers.
package mixed
