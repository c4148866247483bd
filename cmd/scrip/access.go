package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// accessCommand manages keys.
func (m *Main) accessCommand() *cobra.Command {
	g := cli.Group("access", "Make, show, revoke and replace keys of users",
		command(m, action[ops.MadeKey]{
			use: "create NAME --role ROLE", name: "access.create", args: []string{"name"}, short: "Make a key and print it, once",
			long: `Make a key and print it, once. NAME names its user, 1 to 64 bytes; events and settings show it as "by".`,
			example: `  scrip access create checkout-eu --role producer --campaign summer,winter
  scrip access create web --role producer --public --campaign summer --origin https://shop.example
  scrip access create 'Ann Lee' --role support --customers
  scrip access create mobile --role sender       for pushsender --name mobile
  scrip access create ci --role operator -o json`,
			print: m.printMade,
		}),
		m.accessList(),
		command(m, action[access.Key]{use: "show KEY", name: "access.show", args: []string{"key"}, short: "Show a key",
			print: func(k access.Key) error { return m.printKeys(ops.Page[access.Key]{Items: []access.Key{k}}) }}),
		command(m, action[access.Key]{
			use: "revoke KEY", name: "access.revoke", args: []string{"key"}, short: "End a key at once",
			long: `End a key at once, on every server within a second: requests are refused, and connections and streams in progress end. KEY
is the id of one key, or the name of all that scrip access list shows with it, also one that was replaced and is within its
overlap. It cannot be undone; make a new key instead.`,
			example: `  scrip access revoke 01h8z3qk
  scrip access revoke checkout-eu`,
			print: func(k access.Key) error {
				_, err := fmt.Fprintf(m.Out, "key %s of %s, role %s, ended at %s by %s\n", k.ID, cli.Line(k.Name), k.Role, orZero(k.Ended), cli.Line(k.EndedBy))
				return err
			},
		}),
		command(m, action[ops.MadeKey]{
			use: "rotate KEY", name: "access.rotate", args: []string{"key"}, short: "Replace a key by a new one with the same name and rights, and print it, once",
			long: `Replace a key by a new one with the same name and rights, and print it, once. The old key ends at once, or after --overlap:
until then both work, so that programs can be given the new one without an outage. But an analyst's user in PostgreSQL, which
is the key's name, has one password: there the new key alone works, at once.`,
			example: `  scrip access rotate checkout-eu --overlap 24h`,
			print:   m.printMade,
		}))
	g.Long = `Make, show, revoke and replace keys of users. A key opens NATS, as the user of the URL (--nats nats://KEY@HOST:4222), and HTTP
(Authorization: Bearer KEY). It is printed once; the log has its hash. A change is in force on every server within a second,
and is recorded with its author, see scrip audit. Only operators, and who has the credentials of the data directory, may
change keys.

Roles, and what they may do:
  producer   ` + mayDo(access.Principal{Role: access.Producer}) + `
             with --public, for browsers: ` + mayDo(access.Principal{Role: access.Producer, Public: true}) + `
             made by who does not see codes: it gets those of new claims only
  sender     ` + mayDo(access.Principal{Role: access.Sender}) + `, for the audience that its name starts with (pushsender --name)
  analyst    ` + mayDo(access.Principal{Role: access.Analyst}) + `
  support    ` + mayDo(access.Principal{Role: access.Support}) + `
  operator   everything that people may do, keys included

With --codes a key sees codes, with --customers ids of customers; without, stars or keyed hashes, equal for equal ones, but what its
own requests name. Nobody gives a right that they have not.`
	return g
}

// mayDo is the operations that p may do.
func mayDo(p access.Principal) string {
	var names []string
	for o := range access.Operations() {
		if p.CheckRole(o) == nil {
			names = append(names, o.String())
		}
	}
	return strings.Join(names, " ")
}

// printMade prints a key, which cannot be printed again. The key alone is on standard output, so that it can be piped into a
// file or a store of secrets.
func (m *Main) printMade(made ops.MadeKey) error {
	fmt.Fprintf(m.Err, "key %s of %s, role %s%s; it is not shown again:\n", made.ID, cli.Line(made.Name), made.Role, limits(&made.Key))
	if made.Replaces != "" {
		fmt.Fprintf(m.Err, "it replaces key %s; see scrip access list for when that ends\n", made.Replaces)
	}
	if made.PostgresURL != "" {
		fmt.Fprintf(m.Err, "PostgreSQL knows it in a second, as the password of %s\n", made.PostgresURL)
	}
	_, err := fmt.Fprintln(m.Out, made.Secret)
	return err
}

// limits is the text of what a key is limited to.
func limits(k *access.Key) string {
	var all []string
	if k.Role == access.Sender {
		all = append(all, "audience "+k.Principal().Audience())
	}
	if k.Campaigns != nil {
		all = append(all, "campaigns "+strings.Join(k.Campaigns, ","))
	}
	if k.Public {
		all = append(all, "public")
	}
	if k.Origins != nil {
		all = append(all, "origins "+strings.Join(k.Origins, ","))
	}
	if k.Rate > 0 {
		all = append(all, fmt.Sprintf("%d requests a second", k.Rate))
	}
	if k.Codes {
		all = append(all, "codes")
	}
	if k.Customers {
		all = append(all, "customers")
	}
	if k.NewOnly {
		all = append(all, "codes of new claims only")
	}
	if len(all) == 0 {
		return ""
	}
	return ", " + strings.Join(all, ", ")
}

func (m *Main) accessList() *cobra.Command {
	var all bool
	inForce := func(page ops.Page[access.Key]) ops.Page[access.Key] {
		now := m.Clock.Now()
		page.Items = slices.DeleteFunc(page.Items, func(k access.Key) bool { return !all && !k.In(now) })
		return page
	}
	cmd := command(m, action[ops.Page[access.Key]]{
		use: "list", name: "access.list", short: "List keys: who has them, what they may do, and when they were used last",
		long: `List the keys in force, oldest first. Keys themselves are not stored, so they are not shown. The last use is late by up to
an hour.`,
		example: `  scrip access list
  scrip access list --all -o json`,
		json:  func(page ops.Page[access.Key]) any { return inForce(page) },
		print: func(page ops.Page[access.Key]) error { return m.printKeys(inForce(page)) },
	})
	cmd.Flags().BoolVar(&all, "all", false, "also those that were revoked or replaced")
	return cmd
}

func (m *Main) printKeys(page ops.Page[access.Key]) error {
	var rows [][]string
	for _, k := range page.Items {
		ends := "-"
		if !k.Ended.IsZero() {
			ends = orZero(k.Ended) + " by " + k.EndedBy
		}
		rows = append(rows, []string{k.ID, k.Name, k.Role.String(), orText(strings.TrimPrefix(limits(&k), ", "), "-"),
			orZero(k.Created) + " by " + k.CreatedBy, orZero(k.LastUsed), ends})
	}
	return m.table(page.Next, "KEY NAME ROLE LIMITS MADE USED ENDS", rows)
}

// auditCommand lists the audit stream.
func (m *Main) auditCommand() *cobra.Command {
	return command(m, action[ops.Page[audit.Entry]]{
		use: "audit", name: "audit.list", short: "Show who logged in, changed keys or settings, exported, or saw codes in clear",
		long: `Show what people did that makes no event, newest first: log-ins (at most one an hour for each key), changes of keys,
settings and webhooks, jobs, exports, and look-ups in clear. What changed campaigns and coupons is in their events, as "by".`,
		example: `  scrip audit --since -24h
  scrip audit --kind keys -o json
  scrip audit --actor ann --limit 1000`,
		print: func(page ops.Page[audit.Entry]) error {
			var rows [][]string
			for i := range page.Items {
				e := &page.Items[i]
				rows = append(rows, []string{orZero(e.At), orText(plain(e.Actor, wire.MaxBy), "-"), orText(e.Key, "-"), string(e.Kind), plain(e.Action, 60), plain(e.About, 200)})
			}
			return m.table(page.Next, "AT ACTOR KEY KIND ACTION ABOUT", rows)
		},
	})
}
