package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Role is what a key is for.
type Role uint8

// The roles. Their names are part of keys and of records, so a name never gets another meaning.
const (
	NoRole   Role = iota
	Producer      // claims, redeems, rolls back, sets reminders
	Sender        // reads fired reminders, acknowledges, reports
	Analyst       // reads events and tables
	Support       // looks up, voids, extends, rolls back
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
