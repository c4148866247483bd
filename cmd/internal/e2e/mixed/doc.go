// Package mixed runs an older version of the program and this one on one log, and this one on the older one's data.
//
//	git archive 0417b2b ── go build ──> old ──┐
//	                                          ├── one log, under load
//	Main ── go build ──> new ─────────────────┘
//
// It has only tests.
package mixed
