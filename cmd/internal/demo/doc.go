// Package demo runs a flash sale against a server and then proves what the server promised.
//
//	sale:   30,000 customers, many of whom ask twice, want 10,000 coupons; some redeem, some try it twice
//	brief:  coupons that expire while one watches; redeeming one afterwards is refused
//	next:   opens while one watches; its reminders fire before that
//
//	     answers ──┐
//	SCRIP_EVT_* ───┼──> ledger, a fold of its own ──> a table of promises
//	SCRIP_RMD_* ───┤
//	        SQL ───┘
//
// The ledger shares no code with the server: it reads the event lines as any analyst would, with encoding/json. It reads
// from where the log stood when the demo began, so old events cost nothing.
//
// Owner: the person who watches. A demo that is killed leaves its campaigns behind, which harm nobody; the next one
// gives its own another name.
package demo
