// Package demo runs a flash sale against a server and then checks the server's promises.
//
//	sale:   30,000 customers claim 10,000 coupons, many of them twice; some redeem, some try it twice
//	brief:  coupons that expire during the demo; redeeming one afterwards is refused
//	next:   opens during the demo; its reminders fire before that
//
//	SCRIP_EVT_* ───┬──> oracle.Fold ──┐
//	SCRIP_RMD_* ───┘                 ├──> a table of promises
//	    answers, SQL ────────────────┘
//
// The log is folded by the oracle of the tests, which shares no state or rule with the server. It is read from its end
// at the start of the demo, so that older events cost no time.
//
// Owner: the caller of Run. A demo that is killed leaves its campaigns; the next one creates campaigns with other names.
package demo
