package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Header holds the seal of a message. It is the one Scrip- header that the seal does not cover.
const Header = "Scrip-Seal"

const (
	messageInfo  = "scrip seal v1"
	snapshotInfo = "scrip snapshot v1"
	prefix       = "Scrip-"
)

var encoding = base64.RawURLEncoding.Strict()

// Key makes and checks the seals of one log. It is safe for concurrent use. A nil *Key means a reader without the key; its
// methods must not be called.
type Key struct {
	message  [32]byte
	payload  cipher.AEAD
	snapshot [32]byte
}

// Derive returns the key of a log, by its UUID, from its code key.
func Derive(codeKey [32]byte, log string) *Key { return fromRaw(raw(codeKey, log)) }

const (
	messageBytes = 64
	rawBytes     = messageBytes + 32
)

// raw returns the derived keys: those of messages, then that of snapshots.
func raw(codeKey [32]byte, log string) []byte {
	return append(expand(codeKey, log, messageInfo, messageBytes), expand(codeKey, log, snapshotInfo, rawBytes-messageBytes)...)
}

func fromRaw(raw []byte) *Key {
	k := &Key{}
	copy(k.message[:], raw[:32])
	block, err := aes.NewCipher(raw[32:messageBytes])
	if err != nil {
		panic(err) // only for another length of key
	}
	if k.payload, err = cipher.NewGCM(block); err != nil {
		panic(err) // only for another size of block
	}
	copy(k.snapshot[:], raw[messageBytes:])
	return k
}

// Text writes the seal key of a log in the form for readers: the log's UUID, a colon, and the derived keys in base64url.
func Text(codeKey [32]byte, log string) string {
	return log + ":" + encoding.EncodeToString(raw(codeKey, log))
}

// Parse parses the form of Text, for the log with that UUID. Its errors do not quote the key.
func Parse(text, log string) (*Key, error) {
	of, keys, ok := strings.Cut(strings.TrimSpace(text), ":")
	raw, err := encoding.DecodeString(keys)
	switch {
	case !ok || err != nil || len(raw) != rawBytes:
		return nil, errors.New("it is not a seal key; `scrip key seal` prints the one of a log")
	case of != log:
		return nil, fmt.Errorf("the seal key is that of log %.40q, this is log %s; `scrip key seal` prints the right one", of, log)
	}
	return fromRaw(raw), nil
}

func expand(codeKey [32]byte, log, info string, length int) []byte {
	out, err := hkdf.Key(sha256.New, codeKey[:], []byte(log), info, length)
	if err != nil {
		panic(err) // only for lengths above 255 hashes
	}
	return out
}

// String keeps the key out of logs.
func (k *Key) String() string { return "(seal key)" }

// GoString is described at String.
func (k *Key) GoString() string { return k.String() }

var zeroNonce [12]byte

// Message returns the seal of a message at a sequence of a stream.
func (k *Key) Message(stream string, sequence uint64, header map[string][]string, payload []byte) string {
	return encoding.EncodeToString(k.messageSum(stream, sequence, header, payload))
}

func (k *Key) messageSum(stream string, sequence uint64, header map[string][]string, payload []byte) []byte {
	text := make([]byte, 0, 512)
	text = append(text, messageInfo...)
	text = append(text, '\n')
	text = append(text, stream...)
	text = append(text, '\n')
	text = strconv.AppendUint(text, sequence, 10)
	text = append(text, '\n')
	var room [12]string
	names := room[:0]
	for name := range header {
		if strings.HasPrefix(name, prefix) && name != Header {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range header[name] {
			text = append(text, name...)
			text = append(text, ": "...)
			text = append(text, value...)
			text = append(text, "\r\n"...)
		}
	}
	text = append(text, "\r\n"...)
	text = k.payload.Seal(text, zeroNonce[:], nil, payload)
	return sum(&k.message, text)
}

// Valid reports whether a message carries the seal of its stream and sequence.
func (k *Key) Valid(stream string, sequence uint64, header map[string][]string, payload []byte) bool {
	have, ok := decode(header[Header])
	return ok && hmac.Equal(have, k.messageSum(stream, sequence, header, payload))
}

// WellFormed reports whether a message carries a value in the form of a seal. Without the key nothing more can be checked.
func WellFormed(header map[string][]string) bool {
	_, ok := decode(header[Header])
	return ok
}

func decode(values []string) ([]byte, bool) {
	if len(values) != 1 {
		return nil, false
	}
	have, err := encoding.DecodeString(values[0])
	return have, err == nil && len(have) == sha256.Size
}

// Snapshot returns the seal of a snapshot of a name ("lane-3") whose manifest has the given hash. The manifest has the log's
// UUID, the position, and the hashes of all parts.
func (k *Key) Snapshot(name, manifest string) string {
	return encoding.EncodeToString(sum(&k.snapshot, []byte(snapshotInfo+"\n"+name+"\n"+manifest)))
}

// ValidSnapshot reports whether that is the seal of the snapshot.
func (k *Key) ValidSnapshot(name, manifest, seal string) bool {
	return hmac.Equal([]byte(seal), []byte(k.Snapshot(name, manifest)))
}

func sum(key *[32]byte, text []byte) []byte {
	h := hmac.New(sha256.New, key[:])
	h.Write(text)
	return h.Sum(nil)
}
