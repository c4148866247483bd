// Package code makes, reads and checks the codes that people type.
//
// A generated code is the encrypted number of its coupon, so it needs no table: with the key it can be made from the
// coupon's number, and find the coupon from what was typed.
//
//	campaign number   coupon number n
//	    28 bits           32 bits
//	       └──────┬───────────┘
//	           60 bits ── NIST FF1 (radix 32, AES-256, no tweak) ──> 60 bits
//	                                                                   │ 12 symbols of 5 bits, first bits first,
//	                                                                   │ of ABCDEFGHJKLMNPQRSTUVWXYZ23456789
//	                                                   SUMMER-XXXX-XXXX-XXXX
//
// FF1 is a permutation of the 60-bit numbers: two coupons never share a code, in this campaign or any other. Without
// the key a code is indistinguishable from a random one: guessing hits one of c claimed coupons once in 2^60/c tries. There
// is no check symbol: a mistyped code is some other coupon's number, nearly always of a campaign that does not exist or
// of a coupon that is not claimed, and is then answered like a forged one, code_not_found.
//
// Imported codes come from elsewhere: they are only normalised here, and stored by their campaign.
//
// The key is made once, with the log. The definition above is as permanent as the log format: a change to it, or
// another key, would orphan every code that was ever handed out. The goldens of codec_test.go check it.
//
// Everything is pure: nothing is read, written or kept, so a crash here loses nothing.
package code
