package domain

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

type customerHash = [2]uint64

// hasher makes the hashes that are stored instead of customers, orders and ids: SipHash-2-4, below.
//
//	customer id  ──sipHash128──> 16 bytes: who already has a coupon (a collision would give one customer another's)
//	command id   ──sipHash64───>  8 bytes: what was already done
//
// They are keyed so that clients cannot choose ids that collide. They are part of the snapshot format: hashes of one key mean
// nothing under another, so the key belongs to the log and never changes with a release.
type hasher struct{ key [16]byte }

func (h hasher) customer(s string) customerHash { return sipHash128(h.key, s) }
func (h hasher) text(s string) uint64           { return sipHash64(h.key, s) }

// reminder is the argument hash of a remind or unremind command.
func (h hasher) reminder(customer customerHash, kind string, before time.Duration) uint64 {
	x := reminded(customer) ^ leadHash(before)
	if kind == wire.KindExpires {
		x = ^x
	}
	return x
}

// reminded is the part of a reminder's hash that is the customer's. leadHash can be removed from it again, so the hash of a
// pending reminder, whose lead time is known, identifies its customer.
func reminded(customer customerHash) uint64 { return customer[0] ^ customer[1]*0x9e3779b97f4a7c15 }

func leadHash(before time.Duration) uint64 { return uint64(before) * 0xff51afd7ed558ccd }

// eventHashes are what a lane stores of the texts of an event.
type eventHashes struct {
	id       uint64
	customer customerHash
}

// keyCheckOf distinguishes code keys without revealing them.
func keyCheckOf(key [32]byte) (check [16]byte) {
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte("scrip snapshot key check 1"))
	copy(check[:], mac.Sum(nil))
	return check
}

// claimRecord is what is kept of a claimed coupon: 32 bytes.
type claimRecord struct {
	customer customerHash
	id       uint64 // of the claim command
	expiry   uint32 // own expiry in seconds since 1970; inherits = none, irregularExpiry = in sparse.irregular
	act      uint32 // newest act + 1; 0 = none
}

const (
	inherits        = 0
	irregularExpiry = 1<<32 - 1
)

// linkRecord links the coupons of a customer who has several.
type linkRecord struct {
	previous uint32 // the customer's coupon before this one; 0 = none
	others   uint32 // of the customer's newest coupon: how many of the others are not void
}

// links are a link for each claim. Most customers have one coupon, whose link is zero: pages of nothing else are not made, so
// a second coupon among ten million claims costs no more than one among a hundred.
type links []*[linksOfPage]linkRecord

const linksOfPage = 64

// at is the link of claim i.
func (l links) at(i uint32) linkRecord {
	if k := i / linksOfPage; k < uint32(len(l)) && l[k] != nil {
		return l[k][i%linksOfPage]
	}
	return linkRecord{}
}

// edit returns the link of claim i for writing.
func (l *links) edit(i uint32) *linkRecord {
	k := int(i / linksOfPage)
	if k >= len(*l) {
		*l = append(*l, make(links, k+1-len(*l))...)
	}
	if (*l)[k] == nil {
		(*l)[k] = new([linksOfPage]linkRecord)
	}
	return &(*l)[k][i%linksOfPage]
}

// actRecord is an accepted command other than a claim: 32 bytes. The newest act of a coupon has its redemption state.
type actRecord struct {
	id       uint64
	arg      uint64 // what else must be equal for the same id to be the same command: order, settings, reminder
	n        uint32 // coupon, 0 = the campaign's
	previous uint32 // act of the same coupon before this one + 1
	count    uint32 // redeemed count after it; of an import: codes added; of a reminder: its coupon
	kind     wire.CommandType
	flags    uint8  // with the high bits of rolled
	rolled   uint16 // see rollbacks
}

const (
	flagVoided     = 1 << iota // the coupon is void from this act on
	flagRolledBack             // this redemption was taken back

	flagBits = 2
	flagMask = 1<<flagBits - 1
	// maxRolled is how many rollbacks can be counted.
	maxRolled = 1<<(8-flagBits+16) - 1
)

// rollbacks is how many redemptions of its coupon had been rolled back with this act, at most maxRolled. It follows from the
// acts before it, so a snapshot does not hold it.
func (a *actRecord) rollbacks() uint32 { return uint32(a.flags>>flagBits)<<16 | uint32(a.rolled) }

func (a *actRecord) setRollbacks(n uint32) {
	n = min(n, maxRolled)
	a.flags, a.rolled = a.flags&flagMask|uint8(n>>16)<<flagBits, uint16(n)
}

// A reference to a claim or an act is its index, shifted by one; acts have the lowest bit set, so references stay small.
func claimRef(i uint32) uint32 { return i << 1 }

func actRef(i uint32) uint32 { return i<<1 | 1 }

// maxActs is how many acts can be referred to.
const maxActs = 1<<31 - 2

// SipHash-2-4 is our own because domain depends on the standard library alone, and a library would not be better:
// dchest/siphash takes bytes only, so each id would need a copy or package unsafe, and it measured no faster on amd64 for ids of
// 10 to 36 bytes. The tests compare with the vectors of the reference implementation.
//
// These are the four words of the initial state: "somepseudorandomlygeneratedbytes".
const (
	init0 = 0x736f6d6570736575
	init1 = 0x646f72616e646f6d
	init2 = 0x6c7967656e657261
	init3 = 0x7465646279746573
)

// sipHash64 is SipHash-2-4 of p with 64 bits of output: the integer whose little-endian bytes are the tag of the
// reference implementation.
func sipHash64[T ~string | ~[]byte](key [16]byte, p T) uint64 {
	s := sipStart(key)
	sipAbsorb(&s, p)
	s.v2 ^= 0xff
	s.finish()
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3
}

// sipHash128 is SipHash-2-4 of p with 128 bits of output, the first eight bytes of the reference's tag first, each half
// read as little-endian. It is a variant of its own, not an extension of sipHash64.
func sipHash128[T ~string | ~[]byte](key [16]byte, p T) [2]uint64 {
	s := sipStart(key)
	s.v1 ^= 0xee
	sipAbsorb(&s, p)
	s.v2 ^= 0xee
	s.finish()
	first := s.v0 ^ s.v1 ^ s.v2 ^ s.v3
	s.v1 ^= 0xdd
	s.finish()
	return [2]uint64{first, s.v0 ^ s.v1 ^ s.v2 ^ s.v3}
}

// sipState is the four words of a hash under way; it never leaves the stack.
type sipState struct{ v0, v1, v2, v3 uint64 }

func sipStart(key [16]byte) sipState {
	k0, k1 := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	return sipState{k0 ^ init0, k1 ^ init1, k0 ^ init2, k1 ^ init3}
}

// sipAbsorb takes in p as little-endian words of eight bytes, the last one filled with zeroes below the length's low byte.
func sipAbsorb[T ~string | ~[]byte](s *sipState, p T) {
	v0, v1, v2, v3 := s.v0, s.v1, s.v2, s.v3
	last := uint64(len(p)) << 56
	for ; len(p) >= 8; p = p[8:] {
		// Written out, because this is the form that the compiler turns into one load for both kinds of T.
		m := uint64(p[0]) | uint64(p[1])<<8 | uint64(p[2])<<16 | uint64(p[3])<<24 |
			uint64(p[4])<<32 | uint64(p[5])<<40 | uint64(p[6])<<48 | uint64(p[7])<<56
		v3 ^= m
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0 ^= m
	}
	for i := range len(p) {
		last |= uint64(p[i]) << (8 * i)
	}
	v3 ^= last
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= last
	*s = sipState{v0, v1, v2, v3}
}

// finish is the four rounds that end the hash.
func (s *sipState) finish() {
	v0, v1, v2, v3 := s.v0, s.v1, s.v2, s.v3
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	*s = sipState{v0, v1, v2, v3}
}

// sipRound is one SipRound.
func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32) + v3
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	return v0, v1, bits.RotateLeft64(v2, 32), v3
}
