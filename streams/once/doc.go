// Package once remembers small values for a day at most, for all servers of a log: the answers to requests by their idempotency ids, and
// tokens that work once.
//
//	Create ──> bucket SCRIP_ONCE   HMAC of the name = value, encrypted; gone after its time     one creator of a name
//	Put    ──>        │            replaces it
//	Take   <──────────┘            removes it                                                   one taker of a value
//
// Names are what clients send, and values may be secrets: the bucket has a keyed hash of the one and seals the other.
//
// The bucket has a bound, and each client a share of it at each server: one that has used its share is refused, and others go on.
// Where a request has the same effect and answer when it is carried out again, its answer is not kept. A request has a random name,
// which is kept with it: what it makes is named after that, so that nothing which follows from its id outlives the value.
//
// Owner: none. A Store has no goroutine, and may be used by several at once.
//
// What a crash does: a value is created, replaced or removed, or not. Its writer got no answer, and reads it again.
package once
