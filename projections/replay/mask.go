package replay

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

// Mask replaces codes, which are as good as money, by a keyed hash. The same code has the same mask under the same key, so
// tables can still be joined by it. Without the key nobody can tell a code from its mask, not even by trying all codes.
type Mask struct{ key []byte }

const (
	// minMaskKey is the shortest key, in bytes: codes are few enough to be tried under a guessed one.
	minMaskKey  = 16
	maskPrefix  = "masked-"
	maskedBytes = 16 // of the hash
)

// OpenMask reads the key from a file: all of it but white space at the ends, at least 16 bytes. Where there is no file, it
// makes one with a random key, for its owner alone. Errors: *InvalidError for a key that is too short; what reading or
// writing the file gives.
func OpenMask(path string) (*Mask, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		fresh := make([]byte, sha256.Size)
		if _, err := rand.Read(fresh); err != nil {
			return nil, err
		}
		err = atomicfile.Create(path, []byte(hex.EncodeToString(fresh)+"\n"), 0o600)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		raw, err = os.ReadFile(path) // of whoever made it first
	}
	if err != nil {
		return nil, err
	}
	key := strings.TrimSpace(string(raw))
	if len(key) < minMaskKey {
		return nil, invalid("mask-codes", "the key in %s has %d bytes; give a file with %d or more, or one that does not exist", path, len(key), minMaskKey)
	}
	return &Mask{key: []byte(key)}, nil
}

// Code is the mask of a code as the log and the tables write it; "" stays "".
func (m *Mask) Code(code string) string {
	if code == "" {
		return ""
	}
	return maskPrefix + m.hash("code\x00"+code)
}

func (m *Mask) hash(text string) string {
	h := hmac.New(sha256.New, m.key)
	_, _ = h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil)[:maskedBytes])
}

// event masks the codes of an event, in its raw line, too. That is written anew, so fields that this version does not know
// are left out: they may hold codes. What a command.rejected quotes is left out for the same reason.
func (m *Mask) event(e *Event) {
	e.Code = m.Code(e.Code)
	for i, c := range e.Codes {
		e.Codes[i] = m.Code(c)
	}
	if e.Type == wire.CommandRejected {
		e.Payload = ""
	}
	e.Raw = e.AppendJSON(nil)
}

// String names the key without telling it. It is kept with what was masked, to compare.
func (m *Mask) String() string { return "key " + m.hash("fingerprint")[:8] }
