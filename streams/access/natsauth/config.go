package natsauth

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Config is what differs from one rendering of the accounts to another.
type Config struct {
	// Lanes of the log, at least.
	Lanes int
	// Users log in to the servers' account without a key.
	Users []User
	// Issuer is the public key whose owner answers log-ins, an nkey of kind account.
	Issuer string
	// Separate: for nats-servers of their own, with the subject mapping. Values that start with $ are variables of their environment.
	Separate bool
}

// User is a user of the servers' account.
type User struct{ Name, Password string }

// Subjects of the system account that the servers import, to disconnect users.
const (
	// Connections lists connections of all nats-servers.
	Connections = "scrip.access.connections"
	// kick disconnects a connection of one nats-server.
	kick            = "$SYS.REQ.SERVER.*.KICK"
	listConnections = "$SYS.REQ.SERVER.PING.CONNZ"
	system          = "$SYS"
)

// Kick is the subject that disconnects a connection of the nats-server with this id.
func Kick(server string) string { return strings.Replace(kick, "*", server, 1) }

// Render writes the accounts as a nats-server configuration.
func Render(c Config) string {
	var b strings.Builder
	line := func(depth int, format string, args ...any) {
		b.WriteString(strings.Repeat("  ", depth))
		fmt.Fprintf(&b, format, args...)
		b.WriteByte('\n')
	}
	line(0, "accounts {")
	line(1, "%q: {", system)
	line(2, "exports: [")
	line(3, "{ service: %q, accounts: [%s] }", kick, access.AccountServers)
	line(3, "{ service: %q, accounts: [%s], response_type: stream }", listConnections, access.AccountServers)
	line(2, "]")
	line(1, "}")

	line(1, "# Servers of scrip, with the streams.")
	line(1, "%s: {", access.AccountServers)
	line(2, "jetstream: enabled")
	line(2, "users: [")
	for _, u := range c.Users {
		p := OfServers(c.Lanes)
		line(3, "{ user: %s, password: %s, permissions: {", c.value(u.Name), c.value(u.Password))
		for _, list := range [][]string{append([]string{"publish"}, p.Publish...), append([]string{"subscribe"}, p.Subscribe...)} {
			line(4, "%s: [", list[0])
			for _, subject := range list[1:] {
				line(5, "%q", subject)
			}
			line(4, "]")
		}
		line(3, "} }")
	}
	line(2, "]")
	if c.Separate {
		line(2, "mappings: {")
		line(3, "%q: %q", topology.CmdPattern, topology.MappedCmd(c.Lanes))
		line(3, "%q: %q", topology.AdminPattern, topology.MappedAdmin(c.Lanes))
		line(2, "}")
	}
	line(2, "imports: [")
	line(3, "{ service: { account: %q, subject: %q } }", system, kick)
	line(3, "{ service: { account: %q, subject: %q }, to: %q }", system, listConnections, Connections)
	line(2, "]")
	line(2, "exports: [")
	rows := Rows()
	for i, e := range rows {
		same := func(r Row) bool { return r.Subject == e.Subject }
		if slices.ContainsFunc(rows[:i], same) {
			continue // rows of one subject are one export
		}
		var accounts []string
		for _, r := range rows[i:] {
			if same(r) {
				accounts = append(accounts, r.Account)
			}
		}
		kind := ""
		if e.Many {
			kind = ", response_type: stream"
		}
		line(3, "{ service: %q, accounts: [%s]%s }", e.Subject, strings.Join(accounts, ", "), kind)
	}
	for _, g := range guests {
		if g.outcomes {
			line(3, "{ stream: %q, accounts: [%s] }", inboxes(g.roles[0]), g.account)
		}
	}
	line(2, "]")
	line(1, "}")

	for _, g := range guests {
		line(1, "%s: {", g.account)
		line(2, "limits: { max_connections: %d, max_subscriptions: %d }", natsx.GuestConnections, natsx.GuestSubscriptions)
		line(2, "imports: [")
		for _, e := range rows {
			if e.Account == g.account {
				// share: the service gets the user in header Nats-Request-Info. The account is in the subject.
				local := ""
				if e.Local != "" {
					local = fmt.Sprintf(", to: %q", e.Local)
				}
				line(3, "{ service: { account: %s, subject: %q }%s, share: true }", access.AccountServers, e.Subject, local)
			}
		}
		if g.outcomes {
			line(3, "{ stream: { account: %s, subject: %q } }", access.AccountServers, inboxes(g.roles[0]))
		}
		line(2, "]")
		line(1, "}")
	}
	line(0, "}")

	var own []string
	for _, u := range c.Users {
		own = append(own, c.value(u.Name))
	}
	line(0, "authorization {")
	line(1, "# The log-in of a client that is no user of %s is answered by a server of scrip, from the keys of users.", access.AccountServers)
	line(1, "auth_callout { issuer: %s, account: %s, auth_users: [%s] }", c.value(c.Issuer), access.AccountServers, strings.Join(own, ", "))
	line(0, "}")
	return b.String()
}

// value writes a string as a value of a nats-server configuration, or a variable.
func (c *Config) value(s string) string {
	if c.Separate && strings.HasPrefix(s, "$") {
		return s
	}
	return fmt.Sprintf("%q", s)
}

// Variables of the environment of a nats-server that loads File.
const (
	UserVariable     = "NATS_USER"
	PasswordVariable = "NATS_PASSWORD"
	IssuerVariable   = "NATS_ISSUER"
)

// File is the accounts of a log of that many lanes as a file for nats-server, with values from its environment.
func File(lanes int) string {
	return fmt.Sprintf("# Made by: scrip nats config --lanes %d\n#\n"+
		"# The environment of nats-server must have %s and %s, for scrip's servers alone, and %s, which\n"+
		"# `scrip nats env` prints.\n\n", lanes, UserVariable, PasswordVariable, IssuerVariable) +
		Render(Config{Lanes: lanes, Users: []User{{Name: "$" + UserVariable, Password: "$" + PasswordVariable}}, Issuer: "$" + IssuerVariable, Separate: true})
}
