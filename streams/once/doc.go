// Package once remembers small values for a day, for all servers of a log: the answers to requests by their idempotency ids, and
// tokens that work once.
//
//	Create ──> bucket SCRIP_ONCE   HMAC of the name = value, encrypted; gone after 24 hours     one creator of a name
//	Put    ──>        │            replaces it
//	Take   <──────────┘            removes it                                                   one taker of a value
//
// Names are what clients send, and values may be secrets: the bucket has a keyed hash of the one and seals the other.
//
// Owner: none. A Store has no goroutine, and may be used by several at once.
//
// What a crash does: a value is created, replaced or removed, or not. Its writer got no answer, and reads it again.
package once
