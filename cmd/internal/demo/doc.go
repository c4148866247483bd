// Package demo runs a flash sale against a server and shows three promises in seconds:
//
//	sale:   30,000 customers claim 10,000 coupons, many of them twice          a code goes to one holder only
//	brief:  coupons expire; redeeming one afterwards, or twice, is refused     a coupon is not redeemed too late or too often
//	next:   reminders before an opening fire, but those that were cancelled    a reminder fires once, not after a cancel
//
//	answers, SQL ──> a table of numbers, with what is expected of each
//
// Owner: the caller of Run. A demo that is killed leaves its campaigns; the next one creates campaigns with other names.
package demo
