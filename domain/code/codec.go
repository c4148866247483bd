package code

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"sync"
)

const (
	// MaxCampaign is the largest campaign number that a code can hold.
	MaxCampaign = 1<<28 - 1
	// Symbols is the number of symbols of a code, without prefix and hyphens.
	Symbols = 12
	// MaxCodeLen is the most bytes that AppendCode appends with a valid prefix.
	MaxCodeLen = MaxPrefixLen + 1 + Symbols + 2
	// MaxInputLen is the most bytes that Decode looks at; longer input is no code.
	MaxInputLen = 128
)

// Alphabet is the 32 symbols of a code in the order of their values. I, O, 0 and 1 are not among them and are not
// taken for others: a code with one of them is a forged one.
const Alphabet = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"

const (
	halfBits = 30
	halfMask = 1<<halfBits - 1
)

// Codec makes and reads the generated codes of one key. It may be used from several goroutines at once, one after the
// other through a lock: give each lane a Clone, so that they do not wait for each other. It allocates nothing per code.
type Codec struct {
	block cipher.Block // AES-256 under the code key
	tail  uint64       // last eight bytes of AES(P), P being FF1's first block, which is constant here

	// mu guards in and out, the block before and after the cipher. On the stack of a call they would escape through the
	// interface and cost an allocation per code. Without the lock a race would hand out a wrong code. The first eight
	// bytes of in are those of AES(P) and never change.
	mu      sync.Mutex
	in, out [16]byte
}

// New returns the codec of a code key (see ParseKey).
func New(key [32]byte) *Codec {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // 32 bytes are always an AES key
	}
	c := &Codec{block: block, in: firstBlock(uint32(len(Alphabet)), Symbols, 0)}
	c.block.Encrypt(c.in[:], c.in[:])
	c.tail = binary.BigEndian.Uint64(c.in[8:])
	return c
}

// Clone returns a codec of the same key with a lock of its own. It is cheap: the expanded key is shared.
func (c *Codec) Clone() *Codec {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &Codec{block: c.block, tail: c.tail, in: c.in}
}

// Encode returns the 12 symbols of coupon n (from 1) of a campaign (0 to MaxCampaign). Any other number is a mistake of
// the program that would hand out another campaign's code or one that Decode refuses, and panics.
func (c *Codec) Encode(campaign, n uint32) (raw [Symbols]byte) {
	if campaign > MaxCampaign || n == 0 {
		panic(fmt.Sprintf("code.Encode: no code for campaign number %d, coupon %d: "+
			"campaigns go from 0 to %d, coupons from 1", campaign, n, MaxCampaign))
	}
	x := c.encrypt(uint64(campaign)<<32 | uint64(n))
	for i := Symbols - 1; i >= 0; i-- {
		raw[i] = Alphabet[x&31]
		x >>= 5
	}
	return raw
}

// AppendCode appends the code as people see it, PREFIX-XXXX-XXXX-XXXX, or without the prefix if that is empty. The
// prefix is one that ValidPrefix accepts, written in upper case. Panics as Encode does.
func (c *Codec) AppendCode(dst []byte, prefix string, campaign, n uint32) []byte {
	raw := c.Encode(campaign, n)
	if prefix != "" {
		for i := range len(prefix) {
			dst = append(dst, upper(prefix[i]))
		}
		dst = append(dst, '-')
	}
	dst = append(dst, raw[0:4]...)
	dst = append(dst, '-')
	dst = append(dst, raw[4:8]...)
	dst = append(dst, '-')
	return append(dst, raw[8:12]...)
}

// Decode finds the coupon of a code that a person typed. Lower case, spaces and hyphens are forgiven anywhere, and so
// is any prefix: the last 12 symbols are the code, what stands before them need only be printable ASCII. ok is false
// for what cannot be a code of this key: too few symbols, a symbol outside the alphabet, more than MaxInputLen bytes,
// coupon number 0. ok does not mean that campaign or coupon exist: nearly every well-formed input decodes to something.
func (c *Codec) Decode(input string) (campaign, n uint32, ok bool) {
	if len(input) > MaxInputLen {
		return 0, 0, false
	}
	var x uint64
	symbols, i := 0, len(input)-1
	for ; i >= 0 && symbols < Symbols; i-- {
		if input[i] == ' ' || input[i] == '-' {
			continue
		}
		v := values[input[i]]
		if v == noSymbol {
			return 0, 0, false
		}
		x |= uint64(v) << (5 * symbols)
		symbols++
	}
	if symbols < Symbols {
		return 0, 0, false
	}
	for ; i >= 0; i-- {
		if input[i] < ' ' || input[i] > '~' {
			return 0, 0, false
		}
	}
	x = c.decrypt(x)
	campaign, n = uint32(x>>32), uint32(x) // x has 60 bits, so the campaign has 28
	if n == 0 {
		return 0, 0, false
	}
	return campaign, n, true
}

// encrypt is FF1 of x as 12 numerals of radix 32, the symbols of a code: two halves of 30 bits, so that every number of
// the standard fits in a machine word and each round is one AES block.
func (c *Codec) encrypt(x uint64) uint64 {
	a, b := uint32(x>>halfBits), uint32(x&halfMask)
	c.mu.Lock()
	for i := range byte(rounds) {
		a, b = b, (a+c.roundValue(i, b))&halfMask
	}
	c.mu.Unlock()
	return uint64(a)<<halfBits | uint64(b)
}

// decrypt is the inverse of encrypt.
func (c *Codec) decrypt(x uint64) uint64 {
	a, b := uint32(x>>halfBits), uint32(x&halfMask)
	c.mu.Lock()
	for i := rounds - 1; i >= 0; i-- {
		a, b = (b-c.roundValue(byte(i), a))&halfMask, a
	}
	c.mu.Unlock()
	return uint64(a)<<halfBits | uint64(b)
}

// roundValue is the lower 32 bits of the standard's y, of which 30 are used. The second block Q is eleven zeroes, the
// round and the half in four bytes; y is the first eight bytes of AES(AES(P) xor Q). Called with mu held.
func (c *Codec) roundValue(round byte, half uint32) uint32 {
	binary.BigEndian.PutUint64(c.in[8:], c.tail^uint64(round)<<32^uint64(half))
	c.block.Encrypt(c.out[:], c.in[:])
	return binary.BigEndian.Uint32(c.out[4:])
}

// noSymbol marks the bytes that are no symbol.
const noSymbol = 0xff

// values is the value of each symbol, upper and lower case.
var values = func() (t [256]byte) {
	for i := range t {
		t[i] = noSymbol
	}
	for v := range len(Alphabet) {
		s := Alphabet[v]
		t[s] = byte(v)
		if s >= 'A' {
			t[s|0x20] = byte(v)
		}
	}
	return t
}()

// upper is the upper case of an ASCII letter; every other byte stays. Other alphabets are left alone on purpose: in
// Unicode the upper case of ı is I and that of ſ is S.
func upper(b byte) byte {
	if 'a' <= b && b <= 'z' {
		return b - ('a' - 'A')
	}
	return b
}
