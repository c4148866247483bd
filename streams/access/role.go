package access

import (
	"fmt"
	"strings"
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
	numRoles
)

var roleNames = [numRoles]string{
	Producer: "producer", Sender: "sender", Analyst: "analyst", Support: "support", Operator: "operator", Server: "server",
}

func (r Role) String() string {
	if r == NoRole || r >= numRoles {
		return "none"
	}
	return roleNames[r]
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
	var names []string
	for _, r := range Keyed {
		names = append(names, roleNames[r])
	}
	if s == roleNames[Server] {
		return NoRole, fmt.Errorf("role is %q, and servers have no keys: they use the credentials of the NATS configuration; expected one of %s", s, strings.Join(names, ", "))
	}
	return NoRole, fmt.Errorf("role is %q, expected one of %s", s, strings.Join(names, ", "))
}

// Scoped reports whether a key of this role may be limited to campaigns. Reminders and events are read lane by lane, with
// those of all campaigns.
func (r Role) Scoped() bool { return r == Producer || r == Support || r == Operator }
