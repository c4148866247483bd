package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// auditCommand lists the audit stream.
func (m *Main) auditCommand() *cobra.Command {
	var actor, kind string
	var since, until wire.Instant
	var limit uint32
	cmd := &cobra.Command{
		Use: "audit", Short: "Show who logged in, changed keys or settings, exported, or saw codes in clear", Args: cli.NoArgs,
		Long: `Show what people did that makes no event, oldest first: log-ins (at most one an hour for each key), changes of keys and of
settings, exports, and look-ups in clear. What changed campaigns and coupons is in their events, as "by".`,
		Example: `  scrip audit --since -24h
  scrip audit --kind keys -o json
  scrip audit --actor ann --limit 1000`,
	}
	f := cmd.Flags()
	f.StringVar(&actor, "actor", "", "only what this user did: the `NAME` or the id of a key, or local:NAME")
	f.Var(&cli.Value{Kind: "KIND", Parse: func(s string) error {
		_, err := audit.ParseKind(s)
		kind = s
		return err
	}}, "kind", "only this kind: login, keys, settings, export, lookup or webhooks")
	f.Var(m.moment(&since), "since", "only from this time on; -24h is a day ago")
	f.Var(m.moment(&until), "until", "only before this time")
	f.Var(cli.Number(&limit, 100, 1, 1000), "limit", "show this many of the newest")
	return m.queryRunE(cmd, func(ctx context.Context, s *session, _ []string) error {
		request := map[string]any{"actor": actor, "kind": kind, "limit": limit}
		if since != 0 {
			request["since"] = since.Time()
		}
		if until != 0 {
			request["until"] = until.Time()
		}
		var page ops.AuditPage
		if err := m.ask(ctx, s, "audit.list", request, &page); err != nil {
			return err
		}
		if m.global.output == outputJSON {
			if page.Entries == nil {
				page.Entries = []audit.Entry{}
			}
			return cli.JSON(m.Out, page)
		}
		var rows [][]string
		for i := range page.Entries {
			e := &page.Entries[i]
			rows = append(rows, []string{orZero(e.At), orText(plain(e.Actor, wire.MaxBy), "-"), orText(e.Key, "-"), string(e.Kind), plain(e.Action, 60), plain(e.About, 200)})
		}
		if page.More {
			fmt.Fprintln(m.Out, "older entries are left out; see --limit and --until")
		}
		return cli.Table(m.Out, "AT ACTOR KEY KIND ACTION ABOUT", rows)
	})
}

// record adds an entry to the audit stream for what this program does by itself, before it does it. It needs the credentials of
// the servers. The author is what the command line names.
func (m *Main) record(ctx context.Context, js jetstream.JetStream, kind audit.Kind, action, about string) error {
	err := audit.Open(js, m.Clock).Append(ctx, audit.By(access.Local(cmp.Or(m.by, userAtHost())), kind, action, about))
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		fmt.Fprintln(m.Err, "scrip: this is not recorded: the log has no audit stream yet, which its servers make when they are upgraded")
		return nil
	}
	return err
}
