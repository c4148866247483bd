package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"hash/crc32"
	"strings"
)

// A key is a role, an id, a secret and a checksum:
//
//	sk_producer_01h8z3qk…                 48 symbols after the role
//	            ────────                   id: 8 symbols, 40 bits, public
//	                    ────────────…      secret: 176 random bits, and the checksum of all before it, 24 bits
//
// The checksum lets a scanner of source code recognise a key, and a mistyped one be refused without a look at the registry.
// The expression that matches keys is [Pattern].
const (
	keyPrefix = "sk_"
	idBytes   = 5
	secret    = 22
	sumBytes  = 3
	// IDLen is the length of the id of a key, in symbols.
	IDLen   = idBytes * 8 / 5
	symbols = (idBytes + secret + sumBytes) * 8 / 5
)

// Pattern matches keys. It is for scanners.
const Pattern = `sk_(producer|sender|analyst|support|operator)_[0-9a-hjkmnp-tv-z]{48}`

// alphabet is Crockford's, in lower case.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

var encoding = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

// ErrNoKey: a text is no key: of another form, or mistyped.
var ErrNoKey = errors.New("this is no key of scrip: expected sk_ROLE_ and 48 letters and digits, as `scrip access create` printed it")

// newKey makes a key of a role.
func newKey(role Role) (key, id string) {
	var raw [idBytes + secret + sumBytes]byte
	_, _ = rand.Read(raw[:idBytes+secret]) // never fails
	return keyOf(role, raw)
}

// keyOf is the key of random bytes.
func keyOf(role Role, raw [idBytes + secret + sumBytes]byte) (key, id string) {
	putChecksum(role, &raw)
	text := encoding.EncodeToString(raw[:])
	return keyPrefix + role.String() + "_" + text, text[:IDLen]
}

// putChecksum writes the last bytes.
func putChecksum(role Role, raw *[idBytes + secret + sumBytes]byte) {
	h := crc32.NewIEEE()
	h.Write([]byte(role.String()))
	h.Write(raw[:idBytes+secret])
	sum := h.Sum32()
	raw[idBytes+secret], raw[idBytes+secret+1], raw[idBytes+secret+2] = byte(sum>>24), byte(sum>>16), byte(sum>>8)
}

// ParseKey reads the role and the id of a key. It checks its form and its checksum, not whether it exists. The error is
// ErrNoKey.
func ParseKey(key string) (role Role, id string, err error) {
	name, text, ok := strings.Cut(strings.TrimPrefix(key, keyPrefix), "_")
	if !ok || !strings.HasPrefix(key, keyPrefix) || len(text) != symbols {
		return NoRole, "", ErrNoKey
	}
	if role, err = ParseRole(name); err != nil {
		return NoRole, "", ErrNoKey
	}
	// The decoder skips line ends, which a key does not have.
	for i := range len(text) {
		if strings.IndexByte(alphabet, text[i]) < 0 {
			return NoRole, "", ErrNoKey
		}
	}
	var raw, want [idBytes + secret + sumBytes]byte
	if n, err := encoding.Decode(raw[:], []byte(text)); err != nil || n != len(raw) {
		return NoRole, "", ErrNoKey
	}
	want = raw
	putChecksum(role, &want)
	if want != raw {
		return NoRole, "", ErrNoKey
	}
	return role, text[:IDLen], nil
}

// ValidID reports whether a text has the form of the id of a key.
func ValidID(id string) bool {
	if len(id) != IDLen {
		return false
	}
	for i := range len(id) {
		if strings.IndexByte(alphabet, id[i]) < 0 {
			return false
		}
	}
	return true
}

// digest is what is kept of a key.
func digest(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }
