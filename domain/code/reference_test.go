package code

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
)

// minDomain is the least number of different inputs that FF1 may be used on: below a million it can be searched
// through (SP 800-38G revision 1).
const minDomain = 1_000_000

// FF1 is format-preserving encryption as NIST SP 800-38G defines it: a keyed permutation of the strings of n numerals
// of a radix. It is written along the standard, with big integers, and is tested with the standard's vectors. Codec, its fast special
// case, is compared with it.
type FF1 struct {
	block cipher.Block
	radix int
}

// NewFF1 takes an AES key of 16, 24 or 32 bytes and a radix of 2 to 65536.
func NewFF1(key []byte, radix int) (*FF1, error) {
	if radix < 2 || radix > 1<<16 {
		return nil, fmt.Errorf("radix %d is outside FF1's range: use 2 to 65536", radix)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("an FF1 key of %d bytes is no AES key: use 16, 24 or 32 bytes", len(key))
	}
	return &FF1{block: block, radix: radix}, nil
}

// Encrypt returns the encryption of the numerals x, the most significant first, under the tweak (which may be empty).
// It fails if a numeral is not below the radix or if x is so short that it has fewer than a million values.
func (f *FF1) Encrypt(tweak []byte, x []uint16) ([]uint16, error) {
	if err := f.check(tweak, x); err != nil {
		return nil, err
	}
	r := f.schedule(tweak, len(x))
	a, b := f.number(x[:r.u]), f.number(x[r.u:])
	for i := range rounds {
		c := a.Add(a, f.roundValue(r, i, b))
		a, b = b, c.Mod(c, r.modulus(i))
	}
	return append(f.numerals(a, r.u), f.numerals(b, r.v)...), nil
}

// Decrypt is the inverse of Encrypt under the same tweak, and fails on the same inputs.
func (f *FF1) Decrypt(tweak []byte, x []uint16) ([]uint16, error) {
	if err := f.check(tweak, x); err != nil {
		return nil, err
	}
	r := f.schedule(tweak, len(x))
	a, b := f.number(x[:r.u]), f.number(x[r.u:])
	for i := rounds - 1; i >= 0; i-- {
		c := b.Sub(b, f.roundValue(r, i, a))
		a, b = c.Mod(c, r.modulus(i)), a // Mod is Euclidean: never negative
	}
	return append(f.numerals(a, r.u), f.numerals(b, r.v)...), nil
}

func (f *FF1) check(tweak []byte, x []uint16) error {
	const maxLen = 1<<32 - 1 // lengths are written in four bytes of the first block
	if uint64(len(x)) > maxLen || uint64(len(tweak)) > maxLen {
		return errors.New("FF1 input or tweak is too long: give each less than 2^32 elements")
	}
	size := int64(1)
	for i := 0; i < len(x) && size < minDomain; i++ {
		size *= int64(f.radix) // at most minDomain · 65536
	}
	if len(x) < 2 || size < minDomain {
		return fmt.Errorf("FF1 input of %d numerals of radix %d has fewer than %d values: give more numerals",
			len(x), f.radix, minDomain)
	}
	for i, d := range x {
		if int(d) >= f.radix {
			return fmt.Errorf("numeral %d of the FF1 input is %d: give numerals below the radix %d", i, d, f.radix)
		}
	}
	return nil
}

// schedule is what the rounds of one call share. Its fields are named as in the standard.
type schedule struct {
	u, v       int      // numerals in the left and the right half
	b          int      // bytes that hold any number of v numerals
	d          int      // bytes of pseudorandom output used per round
	chain      [16]byte // CBC-MAC state after the constant first block P
	q          []byte   // tweak, zeroes, round number, right half: whole blocks
	powU, powV *big.Int // radix^u, radix^v
}

func (r *schedule) modulus(round int) *big.Int {
	if round%2 == 0 {
		return r.powU
	}
	return r.powV
}

func (f *FF1) schedule(tweak []byte, n int) *schedule {
	r := &schedule{u: n / 2, v: n - n/2}
	radix := big.NewInt(int64(f.radix))
	r.powU = new(big.Int).Exp(radix, big.NewInt(int64(r.u)), nil)
	r.powV = new(big.Int).Exp(radix, big.NewInt(int64(r.v)), nil)

	// ⌈v·log2(radix)⌉ is the length of the largest number of v numerals, in bits: exact, without floating point.
	largest := new(big.Int).Sub(r.powV, big.NewInt(1))
	r.b = (largest.BitLen() + 7) / 8
	r.d = 4*((r.b+3)/4) + 4

	r.chain = firstBlock(uint32(f.radix), uint32(n), uint32(len(tweak)))
	f.block.Encrypt(r.chain[:], r.chain[:])

	r.q = make([]byte, (len(tweak)+1+r.b+15)/16*16)
	copy(r.q, tweak)
	return r
}

// roundValue is y of the standard: the number that round i adds, made from the half that it leaves alone.
func (f *FF1) roundValue(r *schedule, i int, half *big.Int) *big.Int {
	end := len(r.q) - r.b
	r.q[end-1] = byte(i)
	half.FillBytes(r.q[end:])

	mac := r.chain
	for q := r.q; len(q) > 0; q = q[16:] {
		for k := range mac {
			mac[k] ^= q[k]
		}
		f.block.Encrypt(mac[:], mac[:])
	}

	s := make([]byte, 0, r.d+16)
	s = append(s, mac[:]...)
	for j := uint64(1); len(s) < r.d; j++ {
		next := mac
		binary.BigEndian.PutUint64(next[8:], binary.BigEndian.Uint64(next[8:])^j)
		f.block.Encrypt(next[:], next[:])
		s = append(s, next[:]...)
	}
	return new(big.Int).SetBytes(s[:r.d])
}

// number reads numerals, the most significant first.
func (f *FF1) number(x []uint16) *big.Int {
	n, radix, digit := new(big.Int), big.NewInt(int64(f.radix)), new(big.Int)
	for _, d := range x {
		n.Add(n.Mul(n, radix), digit.SetUint64(uint64(d)))
	}
	return n
}

// numerals writes n as exactly m numerals. It uses up n.
func (f *FF1) numerals(n *big.Int, m int) []uint16 {
	x, radix, digit := make([]uint16, m), big.NewInt(int64(f.radix)), new(big.Int)
	for i := m - 1; i >= 0; i-- {
		n.DivMod(n, radix, digit)
		x[i] = uint16(digit.Uint64())
	}
	return x
}
