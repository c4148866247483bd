// Package mixed runs an older version of the programs and this one on one log, and this one on the older one's data.
//
//	git archive 0417b2b ── go build ──> scrip, pushsender, testdata/producer ──┐
//	                                                                           ├── one log, under load
//	this version ───────── go build ──> scrip, pushsender, testdata/producer ──┘
//
// It has only tests.
package mixed
