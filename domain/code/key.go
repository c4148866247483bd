package code

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// ParseKey reads a code key of 64 hex digits, in either case, with white space around it. Its errors never contain any
// of the key, so they may be logged.
func ParseKey(s string) (key [32]byte, err error) {
	s = strings.TrimSpace(s)
	const mend = "set SCRIP_CODE_KEY, or the file code.key in the data directory, " +
		"to the 64 hex digits that this log was created with"
	switch {
	case s == "":
		return key, errors.New("the code key is empty: " + mend)
	case len(s) != 2*len(key):
		return key, fmt.Errorf("the code key has %d characters instead of 64: %s", len(s), mend)
	}
	var parsed [32]byte
	if _, err := hex.Decode(parsed[:], []byte(s)); err != nil {
		// Not wrapped: the error of package hex quotes the character.
		return key, errors.New("the code key has a character that is no hex digit (0-9, a-f): " + mend)
	}
	return parsed, nil
}

// Fingerprint names a code key without giving it away: 16 hex digits. It is stored in the metadata of every stream, and a
// key with another fingerprint is refused at start.
func Fingerprint(key [32]byte) string {
	h := sha256.New()
	h.Write([]byte("scrip code key fingerprint 1\x00")) // no other use of the key hashes this
	h.Write(key[:])
	return hex.EncodeToString(h.Sum(nil)[:8])
}
