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

// Mask replaces codes by a keyed hash. The same code has the same mask under the same key, so tables can be joined by
// it. Without the key a code cannot be recovered from its mask, not even by trying all codes.
type Mask struct{ key []byte }

const (
	// minMaskKey is the minimum length of a key in bytes: with a guessed key all codes could be tried.
	minMaskKey  = 16
	maskPrefix  = "masked-"
	maskedBytes = 16 // of the hash
)

// OpenMask reads the key from a file: its content without white space at the ends, at least 16 bytes. If the file does
// not exist, it creates one with a random key and mode 0600. Errors: *InvalidError for a key that is too short; errors
// of reading or writing the file.
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
		raw, err = os.ReadFile(path) // another process created it first
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

// Code returns the mask of a code as written in the log and the tables; "" for "".
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

// event masks the codes of an event and of its raw line. The line is encoded again, without fields that this version
// does not know: they may hold codes. The quote of a command.rejected is omitted for the same reason.
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

// String returns a fingerprint of the key. It is stored with the output and compared when a replay continues.
func (m *Mask) String() string { return "key " + m.hash("fingerprint")[:8] }
