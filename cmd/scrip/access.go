package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// accessCommand manages keys through the service, so that a key of an operator is enough and its name is recorded.
func (m *Main) accessCommand() *cobra.Command {
	g := cli.Group("access", "Make, list, revoke and replace keys of users", m.accessCreate(), m.accessList(), m.accessRevoke(), m.accessRotate())
	g.Long = `Make, list, revoke and replace keys of users. A key opens NATS, as the user of the URL (--nats nats://KEY@HOST:4222), and HTTP
(Authorization: Bearer KEY). It is printed once; the log has its hash. A change is in force on every server within a second,
and is recorded with its author, see scrip audit. Only operators, and who has the credentials of the data directory, may
change keys.

Roles:
  producer   claims, redeems, rolls back, sets reminders; with --public for browsers: claims and validates only
  sender     delivers fired reminders, for the audience that its name begins with (pushsender --name)
  analyst    reads events and tables
  support    looks up, voids, extends, rolls back
  operator   everything that people may do, keys included`
	return g
}

// ask sends a request that changes nothing. Its errors name the next step.
func (m *Main) ask(ctx context.Context, s *session, endpoint string, request, into any) error {
	err := s.Manage(ctx, endpoint, request, into)
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w; no server answers this request: start one with the api role, or upgrade it", err)
	}
	return err
}

// manage sends a request that changes keys. Its errors name the next step.
func (m *Main) manage(ctx context.Context, s *session, endpoint string, request, into any) error {
	err := m.ask(ctx, s, endpoint, request, into)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) {
		return fmt.Errorf("unknown outcome, the change may have been stored: %w; see scrip access list", err)
	}
	return err
}

func (m *Main) accessCreate() *cobra.Command {
	var n access.New
	cmd := &cobra.Command{
		Use: "create NAME --role ROLE", Short: "Make a key and print it, once",
		Long: `Make a key and print it, once. NAME names its user, 1 to 64 bytes; events and settings show it as "by".`,
		Example: `  scrip access create checkout-eu --role producer --campaign summer,winter
  scrip access create web --role producer --public --campaign summer
  scrip access create 'Ann Lee' --role support
  scrip access create mobile --role sender       for pushsender --name mobile
  scrip access create ci --role operator -o json`,
		Args: cli.Args("NAME"),
	}
	f := cmd.Flags()
	f.Var(&cli.Value{Kind: "ROLE", Parse: func(s string) (err error) {
		n.Role, err = access.ParseRole(s)
		return err
	}}, "role", "producer, sender, analyst, support or operator")
	f.StringSliceVar(&n.Campaigns, "campaign", nil, "`NAMES` of campaigns that the key is limited to, separated by commas, up to 50 (default all)")
	f.BoolVar(&n.Public, "public", false, "the key may be in a browser: it claims and validates only, with a budget for wrong codes")
	f.IntVar(&n.Rate, "rate", 0, "`N` requests a second at each server, over NATS and HTTP together; a producer with a rate publishes no messages of commands (default any number)")
	f.BoolVar(&n.Codes, "codes", false, "the user sees codes in clear, not masked")
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		if err := cli.Require(cmd, "role"); err != nil {
			return err
		}
		n.Name = given[0]
		var made ops.MadeKey
		if err := m.manage(ctx, s, "access.create", n, &made); err != nil {
			return err
		}
		return m.printMade(made)
	})
}

// printMade prints a key, which cannot be printed again. The key alone is on standard output, so that it can be piped into a
// file or a store of secrets.
func (m *Main) printMade(made ops.MadeKey) error {
	if m.global.output == outputJSON {
		return cli.JSON(m.Out, made)
	}
	fmt.Fprintf(m.Err, "key %s of %s, role %s%s; it is not shown again:\n", made.ID, cli.Line(made.Name), made.Role, limits(&made.Key))
	if made.Replaces != "" {
		fmt.Fprintf(m.Err, "it replaces key %s; see scrip access list for when that ends\n", made.Replaces)
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
	if k.Rate > 0 {
		all = append(all, fmt.Sprintf("%d requests a second", k.Rate))
	}
	if k.Codes {
		all = append(all, "codes")
	}
	if len(all) == 0 {
		return ""
	}
	return ", " + strings.Join(all, ", ")
}

func (m *Main) accessList() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "list", Short: "List keys: who has them, what they may do, and when they were used last", Args: cli.NoArgs,
		Long: `List the keys in force, oldest first. Keys themselves are not stored, so they are not shown. The last use is late by up to
an hour.`,
		Example: `  scrip access list
  scrip access list --all -o json`,
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that were revoked or replaced")
	return m.queryRunE(cmd, func(ctx context.Context, s *session, _ []string) error {
		keys := []access.Key{}
		now := m.Clock.Now()
		for after := ""; ; {
			var page ops.KeyPage
			if err := m.ask(ctx, s, "access.list", map[string]string{"after": after}, &page); err != nil {
				return err
			}
			for _, k := range page.Keys {
				if all || k.In(now) {
					keys = append(keys, k)
				}
			}
			if after = page.Next; after == "" {
				break
			}
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, map[string]any{"keys": keys})
		}
		var rows [][]string
		for i := range keys {
			k := &keys[i]
			ends := "-"
			if !k.Ended.IsZero() {
				ends = orZero(k.Ended) + " by " + k.EndedBy
			}
			rows = append(rows, []string{k.ID, k.Name, k.Role.String(), orText(strings.TrimPrefix(limits(k), ", "), "-"),
				orZero(k.Created) + " by " + k.CreatedBy, orZero(k.LastUsed), ends})
		}
		return cli.Table(m.Out, "KEY NAME ROLE LIMITS MADE USED ENDS", rows)
	})
}

func (m *Main) accessRevoke() *cobra.Command {
	cmd := &cobra.Command{
		Use: "revoke KEY", Short: "End a key at once",
		Long: `End a key at once, on every server within a second: requests are refused, and connections and streams in progress end. KEY
is the id of one key, or the name of all that scrip access list shows with it, also one that was replaced and is within its
overlap. It cannot be undone; make a new key instead.`,
		Example: `  scrip access revoke 01h8z3qk
  scrip access revoke checkout-eu`,
		Args: cli.Args("KEY"),
	}
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		var k access.Key
		if err := m.manage(ctx, s, "access.revoke", map[string]string{"key": given[0]}, &k); err != nil {
			return err
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, k)
		}
		_, err := fmt.Fprintf(m.Out, "key %s of %s, role %s, ended at %s by %s\n", k.ID, cli.Line(k.Name), k.Role, orZero(k.Ended), cli.Line(k.EndedBy))
		return err
	})
}

func (m *Main) accessRotate() *cobra.Command {
	var overlap time.Duration
	cmd := &cobra.Command{
		Use: "rotate KEY", Short: "Replace a key by a new one with the same name and rights, and print it, once",
		Long: `Replace a key by a new one with the same name and rights, and print it, once. The old key ends at once, or after --overlap:
until then both work, so that programs can be given the new one without an outage.`,
		Example: `  scrip access rotate checkout-eu --overlap 24h`,
		Args:    cli.Args("KEY"),
	}
	cmd.Flags().Var(cli.Duration(&overlap, 0, 0, access.MaxOverlap), "overlap", "how long the old key goes on working, up to 720h (default not at all)")
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		var made ops.MadeKey
		if err := m.manage(ctx, s, "access.rotate", map[string]string{"key": given[0], "overlap": overlap.String()}, &made); err != nil {
			return err
		}
		return m.printMade(made)
	})
}
