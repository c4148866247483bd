package code

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"sync"
	"unicode/utf8"
)

const (
	// MaxCampaign is the largest campaign number that a code can hold.
	MaxCampaign = 1<<28 - 1
	// Symbols is the number of symbols of a code, without prefix and hyphens.
	Symbols = 12
	// MaxCodeLen is the most bytes that AppendCode appends with a valid prefix.
	MaxCodeLen = MaxPrefixLen + 1 + Symbols + 2
	// MaxInputLen is the most bytes that Decode reads; longer input is no code.
	MaxInputLen = 128
)

// Alphabet is the 32 symbols of a code in the order of their values. I, O, 0 and 1 are not among them and are not
// taken for others: a code with one of them is a forged one.
const Alphabet = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"

// rounds is the number of Feistel rounds of FF1.
const rounds = 10

const (
	halfBits = 30
	halfMask = 1<<halfBits - 1
)

// Codec makes and reads the generated codes of one key. It may be used from several goroutines at once, one after the
// other through a lock: give each lane a Clone, so that they do not wait for each other. It allocates nothing per code.
type Codec struct {
	block cipher.Block // AES-256 under the code key
	tail  uint64       // last eight bytes of AES(P), P being FF1's first block, which is constant here

	// mu guards in and out, the blocks before and after the cipher. On the stack of a call they would escape through the
	// interface and cost an allocation per code. Without the lock a race would hand out a wrong code. The first eight
	// bytes of each in are those of AES(P) and never change.
	mu      sync.Mutex
	in, out [Batch][16]byte
}

// Batch is how many codes are made or read at once, if there are so many. A round waits for the one before it, so one
// code takes ten times the time that a block takes from end to end; several share that time, eight take a third each.
const Batch = 8

// New returns the codec of a code key (see ParseKey).
func New(key [32]byte) *Codec {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // 32 bytes are always an AES key
	}
	c := &Codec{block: block}
	first := firstBlock(uint32(len(Alphabet)), Symbols, 0)
	block.Encrypt(first[:], first[:])
	for i := range c.in {
		c.in[i] = first
	}
	c.tail = binary.BigEndian.Uint64(first[8:])
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
func (c *Codec) Encode(campaign, n uint32) (raw Raw) {
	x := [1]uint64{number(campaign, n)}
	c.encrypt(x[:])
	raw.write(x[0])
	return raw
}

// Coupon is a coupon by its numbers.
type Coupon struct{ Campaign, N uint32 }

// EncodeBatch is Encode of up to Batch coupons, into as many of raws.
func (c *Codec) EncodeBatch(coupons []Coupon, raws *[Batch]Raw) {
	var xs [Batch]uint64
	for i, k := range coupons {
		xs[i] = number(k.Campaign, k.N)
	}
	c.encrypt(xs[:len(coupons)])
	for i := range coupons {
		raws[i].write(xs[i])
	}
}

// number is what a code encrypts.
func number(campaign, n uint32) uint64 {
	if campaign > MaxCampaign || n == 0 {
		panic(fmt.Sprintf("code.Encode: no code for campaign number %d, coupon %d: "+
			"campaigns go from 0 to %d, coupons from 1", campaign, n, MaxCampaign))
	}
	return uint64(campaign)<<32 | uint64(n)
}

// Raw is the 12 symbols of a code, without prefix and hyphens.
type Raw [Symbols]byte

// write sets the symbols to the 60 bits of x.
func (r *Raw) write(x uint64) {
	for i := Symbols - 1; i >= 0; i-- {
		r[i] = Alphabet[x&31]
		x >>= 5
	}
}

// AppendCode appends the code as people see it, with its hyphens and with the prefix if that is not empty.
func (r *Raw) AppendCode(dst []byte, prefix string) []byte {
	if prefix != "" {
		for i := range len(prefix) {
			dst = append(dst, upper(prefix[i]))
		}
		dst = append(dst, '-')
	}
	dst = append(dst, r[0:4]...)
	dst = append(dst, '-')
	dst = append(dst, r[4:8]...)
	dst = append(dst, '-')
	return append(dst, r[8:12]...)
}

// AppendCode appends the code as people see it, PREFIX-XXXX-XXXX-XXXX, or without the prefix if that is empty. The
// prefix is one that ValidPrefix accepts, written in upper case. Panics as Encode does.
func (c *Codec) AppendCode(dst []byte, prefix string, campaign, n uint32) []byte {
	raw := c.Encode(campaign, n)
	return raw.AppendCode(dst, prefix)
}

// Decode finds the coupon of a code that a person typed. Lower case, spaces and hyphens are forgiven anywhere, and so
// is any prefix: the last 12 symbols are the code, the text before them may be any printable ASCII. ok is false
// for what cannot be a code of this key: too few symbols, a symbol outside the alphabet, more than MaxInputLen bytes,
// coupon number 0. ok does not mean that campaign or coupon exist: nearly every well-formed input decodes to something.
func (c *Codec) Decode(input string) (campaign, n uint32, ok bool) {
	d := [1]Decoded{{Input: input}}
	c.DecodeBatch(d[:])
	return d[0].Campaign, d[0].N, d[0].OK
}

// Formed reports whether an input has the form of a code, of whatever key: what Decode reads. It needs no key.
func Formed(input string) bool {
	var r Raw
	_, ok := r.read(input)
	return ok
}

// Decoded is a code that a person typed, and its result as Decode returns it.
type Decoded struct {
	Input       string
	Campaign, N uint32
	Raw         Raw // what Encode would make of Campaign and N
	OK          bool
}

// DecodeBatch decodes up to Batch codes, filling in what follows from the input of each.
func (c *Codec) DecodeBatch(list []Decoded) {
	var xs [Batch]uint64
	for i := range list {
		xs[i], list[i].OK = list[i].Raw.read(list[i].Input)
	}
	c.decrypt(xs[:len(list)])
	for i := range list {
		d := &list[i]
		if d.OK {
			d.Campaign, d.N = uint32(xs[i]>>32), uint32(xs[i]) // x has 60 bits, so the campaign has 28
			d.OK = d.N != 0
		}
		if !d.OK {
			*d = Decoded{Input: d.Input}
		}
	}
}

// read sets the symbols to those of what a person typed and returns their 60 bits. What is no code is 0 and false.
func (r *Raw) read(input string) (x uint64, ok bool) {
	if len(input) > MaxInputLen {
		return 0, false
	}
	symbols, i := 0, len(input)-1
	for ; i >= 0 && symbols < Symbols; i-- {
		if input[i] == ' ' || input[i] == '-' {
			continue
		}
		v := values[input[i]]
		if v == noSymbol {
			return 0, false
		}
		x |= uint64(v) << (5 * symbols)
		symbols++
		r[Symbols-symbols] = Alphabet[v]
	}
	if symbols < Symbols {
		return 0, false
	}
	for ; i >= 0; i-- {
		if input[i] < ' ' || input[i] > '~' {
			return 0, false
		}
	}
	return x, true
}

// encrypt is FF1 of up to Batch numbers as 12 numerals of radix 32 each, the symbols of a code: two halves of 30 bits, so
// that every number of the standard fits in a machine word and each round is one AES block.
func (c *Codec) encrypt(xs []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for round := range uint64(rounds) {
		c.roundValues(round, xs, 0)
		for i, x := range xs {
			a, b := uint32(x>>halfBits), uint32(x&halfMask)
			xs[i] = uint64(b)<<halfBits | uint64((a+c.roundValue(i))&halfMask)
		}
	}
}

// decrypt is the inverse of encrypt.
func (c *Codec) decrypt(xs []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for round := uint64(rounds); round > 0; round-- {
		c.roundValues(round-1, xs, halfBits)
		for i, x := range xs {
			a, b := uint32(x>>halfBits), uint32(x&halfMask)
			xs[i] = uint64((b-c.roundValue(i))&halfMask)<<halfBits | uint64(a)
		}
	}
}

// firstBlock is P of the standard: the parameters of the call.
func firstBlock(radix, n, tweakLen uint32) [16]byte {
	p := [16]byte{0: 1, 1: 2, 2: 1, 3: byte(radix >> 16), 4: byte(radix >> 8), 5: byte(radix), 6: rounds, 7: byte(n / 2)}
	binary.BigEndian.PutUint32(p[8:], n)
	binary.BigEndian.PutUint32(p[12:], tweakLen)
	return p
}

// roundValues computes the standard's y for the half of each number from the given bit on. The second block Q
// is eleven zeroes, the round and the half in four bytes; y is the first eight bytes of AES(AES(P) xor Q). Called with mu
// held.
//
// First all blocks are written, then all are encrypted: a block read as a whole right after its half was written would
// have to wait until that is in the cache.
func (c *Codec) roundValues(round uint64, xs []uint64, from uint) {
	for i, x := range xs {
		binary.BigEndian.PutUint64(c.in[i][8:], c.tail^round<<32^x>>from&halfMask)
	}
	for i := range xs {
		c.block.Encrypt(c.out[i][:], c.in[i][:])
	}
}

// roundValue is the lower 32 bits of y, of which 30 are used.
func (c *Codec) roundValue(i int) uint32 { return binary.BigEndian.Uint32(c.out[i][4:]) }

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

// MaxPrefixLen is the most characters of a prefix.
const MaxPrefixLen = 16

// ValidPrefix returns what is wrong with a campaign's prefix, which is 0 to 16 letters, digits and underscores, and is
// written in upper case. It is cosmetic: Decode ignores it, and two campaigns may have the same.
func ValidPrefix(s string) error {
	if n := utf8.RuneCountInString(s); n > MaxPrefixLen {
		return fmt.Errorf("prefix has %d characters: use at most %d", n, MaxPrefixLen)
	}
	for i, r := range s {
		if !isWord(r) {
			return fmt.Errorf("prefix has %q at position %d: use only A-Z, 0-9 and _ (the hyphen before the code is added)",
				r, utf8.RuneCountInString(s[:i])+1)
		}
	}
	return nil
}

// isWord reports whether r is an ASCII letter, a digit or an underscore.
func isWord(r rune) bool {
	return 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '_'
}
