package access

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Key is a key as the registry shows it: everything but its secret.
type Key struct {
	ID string `json:"id"`
	New

	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
	// Ended is when it was revoked or replaced, or when the overlap of its rotation ends; zero = it is in force.
	Ended   time.Time `json:"ended,omitzero"`
	EndedBy string    `json:"ended_by,omitempty"`
	// Revoked: it was revoked, or replaced at once. It is not in force, whatever a clock shows.
	Revoked bool `json:"revoked,omitempty"`
	// Replaces and ReplacedBy are ids of the keys of a rotation.
	Replaces   string `json:"replaces,omitempty"`
	ReplacedBy string `json:"replaced_by,omitempty"`
	// LastUsed is late by up to an hour; zero = never.
	LastUsed time.Time `json:"last_used,omitzero"`
	// WrongCodes were tried with it in this hour of UTC, at all servers, but for those of the last minute.
	WrongCodes int `json:"wrong_codes,omitempty"`

	first string // id of the first key of the rotations that led to it; "" = its own
	hash  [sha256.Size]byte
	scram string // of an analyst's key
}

// Principal is who uses the key.
func (k *Key) Principal() Principal {
	return Principal{ID: k.ID, First: k.first, Name: k.Name, Role: k.Role, Campaigns: k.Campaigns, Public: k.Public, Origins: k.Origins, Codes: k.Codes,
		Customers: k.Customers, NewOnly: k.NewOnly, Rate: k.Rate}
}

// In reports whether the key is in force at an instant. Clocks differ between servers, so only the end of an overlap depends on
// one.
func (k *Key) In(now time.Time) bool { return !k.Revoked && (k.Ended.IsZero() || now.Before(k.Ended)) }

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

// Login is an analyst's key as PostgreSQL has it: a role of the key's name, whose password is the key.
type Login struct {
	Name      string `json:"name"`
	ID        string `json:"id"`       // of the first key of the rotations: they keep what was granted to the role
	Verifier  string `json:"verifier"` // as in pg_authid
	Codes     bool   `json:"codes"`
	Customers bool   `json:"customers"`
}

const (
	sqlPrefix = "analyst_"
	// maxSQLName bounds the name of an analyst's key: PostgreSQL cuts off names of more than 63 bytes.
	maxSQLName = 63 - len(sqlPrefix)
)

// SQLUser is the role in PostgreSQL of the analyst's key with that name.
func SQLUser(name string) string { return sqlPrefix + name }

// SQLName is the name of the key that has a role in PostgreSQL; "" = it is no analyst's.
func SQLName(role string) string {
	name, is := strings.CutPrefix(role, sqlPrefix)
	if !is {
		return ""
	}
	return name
}

// scramRounds is PostgreSQL's default. A key is random, so more would not make it safer.
const scramRounds = 4096

// scramOf is the verifier of a key as a password of PostgreSQL, which the password does not follow from (RFC 5802).
func scramOf(key string) string {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	salted, err := pbkdf2.Key(sha256.New, key, salt, scramRounds, sha256.Size)
	if err != nil {
		panic(err) // not for these sizes
	}
	mac := func(text string) []byte {
		h := hmac.New(sha256.New, salted)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	stored, base64 := sha256.Sum256(mac("Client Key")), base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", scramRounds, base64(salt), base64(stored[:]), base64(mac("Server Key")))
}

// Role is what a key is for.
type Role uint8

// The roles; the table of operations has what each may do. Their names are part of keys and of records, so a name never gets
// another meaning.
const (
	NoRole   Role = iota
	Producer      // a program that sends the commands of customers
	Sender        // a program that delivers fired reminders
	Analyst       // reads events and tables
	Support       // helps customers, one coupon at a time
	Operator      // everything people may do
	Server        // what a server of scrip itself needs: no keys, no operations, the NATS account of the log
)

var roleNames = []string{NoRole: "none", Producer: "producer", Sender: "sender", Analyst: "analyst", Support: "support", Operator: "operator", Server: "server"}

func (r Role) String() string {
	if int(r) >= len(roleNames) {
		r = NoRole
	}
	return roleNames[r]
}

// MarshalText writes a role as its name.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the name of a role. Unlike ParseRole it accepts those without keys.
func (r *Role) UnmarshalText(text []byte) error {
	at := slices.Index(roleNames[NoRole+1:], string(text))
	if at < 0 {
		return fmt.Errorf("role is %s, which is none of scrip's", wire.Quote(string(text)))
	}
	*r = NoRole + 1 + Role(at)
	return nil
}

// Keyed are the roles that a key may have, in the order of their rights. Servers use credentials of the NATS configuration:
// keys are checked by servers.
var Keyed = []Role{Producer, Sender, Analyst, Support, Operator}

// ParseRole parses the name of a role that a key may have.
func ParseRole(s string) (Role, error) {
	for _, r := range Keyed {
		if roleNames[r] == s {
			return r, nil
		}
	}
	hint := ","
	if s == roleNames[Server] {
		hint = ", and servers have no keys: they use the credentials of the NATS configuration;"
	}
	return NoRole, fmt.Errorf("role is %s%s expected one of %s", wire.Quote(s), hint, strings.Join(roleNames[Producer:Server], ", "))
}

// Scoped reports whether a key of this role may be limited to campaigns. Reminders and events are read lane by lane, with
// those of all campaigns.
func (r Role) Scoped() bool { return r == Producer || r == Support || r == Operator }
