// Package examples has programs of shops in other languages, which claim coupons and retry until there is an answer.
//
//	claim.sh, claim.py, claim.mjs ── HTTP ──> proxy that loses every third answer ──┐
//	claim_nats.mjs ── NATS ─────────────────> relay that does the same ─────────────┴──> scrip serve
//
// errand.ts and mistakes.ts are for the types that openapi-typescript makes from the document of a server.
// days.mjs counts what an analyst has replayed into a data set, with DuckDB; projections/ANALYSTS.md shows its query.
//
// streams/PRODUCERS.md shows parts of them. It has only tests, which run each program and count coupons. A program that is
// killed is started again: its claims have the same ids, so it gets the same codes.
package examples
