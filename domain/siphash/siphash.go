// Package siphash is SipHash-2-4, the keyed hash that lane state uses instead of the strings themselves.
//
//	customer id  ──Sum128──> 16 bytes: who already has a coupon (a collision would give one customer another's)
//	command id   ──Sum64───>  8 bytes: what was already done
//
// The hash is keyed so that clients, who choose ids, cannot choose collisions. It is part of the snapshot format: hashes of
// one key mean nothing under another, so the key belongs to the log and never changes with a release.
//
// It is our own because domain depends on the standard library alone, and a library would not be better: dchest/siphash
// takes bytes only, so each id would need a copy or package unsafe, and it measured no faster on amd64 for ids of 10 to 36
// bytes. The tests compare with the vectors of the reference implementation.
//
// Everything here is pure, needs no set-up, allocates nothing and may be called from anywhere at once.
package siphash

import (
	"encoding/binary"
	"math/bits"
)

// The four words of the initial state: "somepseudorandomlygeneratedbytes".
const (
	init0 = 0x736f6d6570736575
	init1 = 0x646f72616e646f6d
	init2 = 0x6c7967656e657261
	init3 = 0x7465646279746573
)

// Sum64 is SipHash-2-4 of p with 64 bits of output: the integer whose little-endian bytes are the tag of the
// reference implementation.
func Sum64[T ~string | ~[]byte](key [16]byte, p T) uint64 {
	s := start(key)
	absorb(&s, p)
	s.v2 ^= 0xff
	s.finish()
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3
}

// Sum128 is SipHash-2-4 of p with 128 bits of output, the first eight bytes of the reference's tag first, each half
// read as little-endian. It is a variant of its own, not an extension of Sum64.
func Sum128[T ~string | ~[]byte](key [16]byte, p T) [2]uint64 {
	s := start(key)
	s.v1 ^= 0xee
	absorb(&s, p)
	s.v2 ^= 0xee
	s.finish()
	first := s.v0 ^ s.v1 ^ s.v2 ^ s.v3
	s.v1 ^= 0xdd
	s.finish()
	return [2]uint64{first, s.v0 ^ s.v1 ^ s.v2 ^ s.v3}
}

// state is the four words of a hash under way; it never leaves the stack.
type state struct{ v0, v1, v2, v3 uint64 }

func start(key [16]byte) state {
	k0, k1 := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	return state{k0 ^ init0, k1 ^ init1, k0 ^ init2, k1 ^ init3}
}

// absorb takes in p as little-endian words of eight bytes, the last one filled with zeroes below the length's low byte.
func absorb[T ~string | ~[]byte](s *state, p T) {
	v0, v1, v2, v3 := s.v0, s.v1, s.v2, s.v3
	last := uint64(len(p)) << 56
	for ; len(p) >= 8; p = p[8:] {
		// Written out, because this is the form that the compiler turns into one load for both kinds of T.
		m := uint64(p[0]) | uint64(p[1])<<8 | uint64(p[2])<<16 | uint64(p[3])<<24 |
			uint64(p[4])<<32 | uint64(p[5])<<40 | uint64(p[6])<<48 | uint64(p[7])<<56
		v3 ^= m
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
		v0 ^= m
	}
	for i := range len(p) {
		last |= uint64(p[i]) << (8 * i)
	}
	v3 ^= last
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0 ^= last
	*s = state{v0, v1, v2, v3}
}

// finish is the four rounds that end the hash.
func (s *state) finish() {
	v0, v1, v2, v3 := s.v0, s.v1, s.v2, s.v3
	for range 4 {
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
	}
	*s = state{v0, v1, v2, v3}
}

// round is one SipRound.
func round(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
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
