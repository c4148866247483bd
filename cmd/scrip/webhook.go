package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

func (m *Main) webhookCommand() *cobra.Command {
	g := cli.Group("webhook", "Deliver events to HTTP endpoints of others",
		m.webhookCreate(), m.webhookList(), m.webhookShow(), m.webhookUpdate(), m.webhookRotate(),
		m.webhookAct("pause", webhook.Pause, "Deliver nothing for now", "Deliver nothing for now. The position stays, and events older than --max-age-hours become dead letters after the pause."),
		m.webhookAct("resume", webhook.Resume, "Deliver again", "Deliver again, also to a webhook that a server disabled."),
		m.webhookAct("delete", webhook.Delete, "Remove a webhook", "Remove a webhook and its position. Its dead letters stay."),
		m.webhookReplay(), m.webhookTest(), m.webhookDeadLetters(), m.webhookRetry())
	g.Long = `Deliver events to HTTP endpoints of others, by the Standard Webhooks specification 1.0.0: signed POST requests with the headers
webhook-id, webhook-timestamp and webhook-signature. Servers of role api deliver. A change is in force within a second,
and is recorded with its author, see scrip audit. The same is under /v1/webhooks, with keys of operators.

An event is delivered at least once, and its id is the same each time: webhook-id, or id in a batch. 2xx means delivered, 410 disables the webhook.
While the endpoint is away, or answers 429 or 503 with Retry-After, one request at a time probes it. What fails while
other events are delivered is tried ten times within three days, and then a dead letter. After five days in which every
request failed the webhook is disabled.

Requests go to addresses outside only; serve --webhook-allow CIDR allows others.`
	return g
}

// webhooks opens the registry. With needsKey the code key is required, which seals secrets.
func (m *Main) webhooks(ctx context.Context, s *session, needsKey bool) (*webhook.Store, error) {
	js, log, err := s.log(ctx)
	if err != nil {
		return nil, err
	}
	open := func(key *webhook.Key) *webhook.Store {
		return webhook.Open(js, key, registry.Options{Clock: m.Clock, Audit: audit.Open(js, m.Clock)})
	}
	if !needsKey {
		return open(nil), nil
	}
	given, err := datadir.Variable(m.Env, datadir.KeyVariable)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	key, found, err := datadir.FindKey(m.global.data, given)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("there is no code key in %s, with which secrets are sealed; name the server's data directory with --data DIR, or set %s", m.global.data, datadir.KeyVariable)
	case code.Fingerprint(key.Key) != log.KeyFingerprint:
		return nil, fmt.Errorf("the code key of %s is not that of this log; name the data directory of this server with --data DIR", key.From)
	}
	return open(webhook.NewKey(key.Key, log.UUID)), nil
}

// byFlag is on every command that changes a webhook.
func byFlag(cmd *cobra.Command) *string {
	by := new(string)
	cmd.Flags().Var(&cli.Value{Kind: "NAME", Parse: func(s string) error {
		*by = s
		return wire.CheckBy("by", s)
	}}, "by", "author of the change, for the history (default user@host)")
	return by
}

// author is who uses the credentials of the data directory, which do not prove the name.
func author(by string) webhook.Author {
	return webhook.Author{Principal: access.Local(cmp.Or(by, userAtHost())), Via: "nats"}
}

// badChange turns a change that is not possible into a usage error.
func badChange(err error) error {
	var invalid *webhook.InvalidError
	if errors.As(err, &invalid) {
		return &cli.UsageError{Err: err}
	}
	return err
}

// unrecorded prints that a change has no entry in the audit stream. The change was made, so its result is printed all the same.
func (m *Main) unrecorded(err error) error {
	if errors.Is(err, registry.ErrUnrecorded) {
		fmt.Fprintln(m.Err, "scrip:", cli.Text(err.Error()))
		return nil
	}
	return err
}

// secretShown is a webhook with its secret, shown once.
type secretShown struct {
	webhook.Endpoint
	Secret string `json:"secret"`
}

func (m *Main) webhookCreate() *cobra.Command {
	var want webhook.Config
	cmd := &cobra.Command{
		Use: "create URL", Short: "Create a webhook and print its secret, once", Args: cli.Args("URL"),
		Long: `Create a webhook and print its secret, once: give it to the receiver, which verifies signatures with it. Delivery begins with
events from now on.

Event types: coupon.*, campaign.*, ` + strings.Join(webhook.Types(), ", ") + `.

A request has one event, {"type","timestamp","data"}. With --batch above 1 it has the events of one step of a lane, up to that
many and 256 KiB: {"type":"events","timestamp","data":{"events":[{"id","type","timestamp","data"}]}}; a response 207 with
{"failed":[0,3]} names those that were not taken. Codes and attributes are left out without --codes.`,
		Example: `  scrip webhook create https://shop.example/hooks --types coupon.claimed,coupon.redeemed
  scrip webhook create https://crm.example/scrip --types 'campaign.*,coupons.expired' --batch 100`,
	}
	settingsFlags(cmd, &want)
	by := byFlag(cmd)
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		want.URL = given[0]
		if _, err := want.Validate(); err != nil {
			return &cli.UsageError{Err: err}
		}
		store, err := m.webhooks(ctx, s, true)
		if err != nil {
			return err
		}
		e, secret, err := store.Create(ctx, author(*by), want)
		if err = m.unrecorded(err); err != nil {
			return badChange(err)
		}
		return m.printSecret(e, secret.Text())
	})
}

// settingsFlags are the flags of settings but the URL.
func settingsFlags(cmd *cobra.Command, want *webhook.Config) {
	f := cmd.Flags()
	f.StringSliceVar(&want.Types, "types", nil, "event `TYPES`, separated by commas")
	f.StringSliceVar(&want.Campaigns, "campaign", nil, "`NAMES` of campaigns (default all)")
	f.IntVar(&want.Batch, "batch", 1, "most events in one request, 1 to 500")
	f.IntVar(&want.Rate, "rate", 50, "most requests a second, 1 to 1000")
	f.IntVar(&want.Concurrency, "concurrency", 4, "most requests at once, 1 to 64")
	f.IntVar(&want.MaxAgeHours, "max-age-hours", 168, "after how many hours an event is a dead letter instead, 1 to 720")
	f.BoolVar(&want.Codes, "codes", false, "include codes and attributes")
}

func (m *Main) webhookUpdate() *cobra.Command {
	var want webhook.Config
	cmd := &cobra.Command{
		Use: "update ID", Short: "Change settings of a webhook", Args: cli.Args("ID"),
		Long: `Change the settings that are given; the others stay. What is delivered from now on follows the new ones. A type that is added
begins now; scrip webhook replay delivers what was before.`,
		Example: `  scrip webhook update 7kq29f3m --rate 200 --concurrency 16
  scrip webhook update 7kq29f3m --url https://new.example/hooks`,
	}
	settingsFlags(cmd, &want)
	cmd.Flags().StringVar(&want.URL, "url", "", "the `URL`")
	by := byFlag(cmd)
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		set := map[string]func(*webhook.Config){
			"url": func(s *webhook.Config) { s.URL = want.URL }, "types": func(s *webhook.Config) { s.Types = want.Types },
			"campaign": func(s *webhook.Config) { s.Campaigns = want.Campaigns }, "batch": func(s *webhook.Config) { s.Batch = want.Batch },
			"rate": func(s *webhook.Config) { s.Rate = want.Rate }, "concurrency": func(s *webhook.Config) { s.Concurrency = want.Concurrency },
			"max-age-hours": func(s *webhook.Config) { s.MaxAgeHours = want.MaxAgeHours }, "codes": func(s *webhook.Config) { s.Codes = want.Codes },
		}
		maps.DeleteFunc(set, func(name string, _ func(*webhook.Config)) bool { return !cmd.Flags().Changed(name) })
		if len(set) == 0 {
			return cli.Usagef("nothing to change; give at least one setting")
		}
		store, err := m.webhooks(ctx, s, false)
		if err != nil {
			return err
		}
		e, err := store.Set(ctx, author(*by), given[0], 0, func(s webhook.Config) webhook.Config {
			for _, f := range set {
				f(&s)
			}
			return s
		})
		return m.printChanged(e, given[0], err)
	})
}

func (m *Main) printSecret(e webhook.Endpoint, secret string) error {
	if m.global.output == outputJSON {
		return cli.JSON(m.Out, secretShown{e, secret})
	}
	_, err := fmt.Fprintf(m.Out, "webhook %s\nsecret  %s\n", e.ID, secret)
	return err
}

func (m *Main) webhookRotate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rotate ID", Short: "Replace the secret and print the new one, once", Args: cli.Args("ID"),
		Long: `Replace the secret and print the new one, once. For 24 hours requests are signed with both, so that the receiver may change at
any moment.`,
	}
	by := byFlag(cmd)
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		store, err := m.webhooks(ctx, s, true)
		if err != nil {
			return err
		}
		e, secret, err := store.Rotate(ctx, author(*by), given[0])
		if err = m.unrecorded(err); err != nil {
			return badChange(err)
		}
		return m.printSecret(e, secret.Text())
	})
}

// webhookAct is a command that makes one change of one webhook.
func (m *Main) webhookAct(use, what, short, long string) *cobra.Command {
	cmd := &cobra.Command{Use: use + " ID", Short: short, Long: long, Args: cli.Args("ID")}
	by := byFlag(cmd)
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		return m.change(ctx, s, author(*by), webhook.Change{Webhook: given[0], What: what})
	})
}

func (m *Main) change(ctx context.Context, s *session, who webhook.Author, c webhook.Change) error {
	store, err := m.webhooks(ctx, s, false)
	if err != nil {
		return err
	}
	e, err := store.Make(ctx, who, c, 0)
	return m.printChanged(e, c.Webhook, err)
}

// printChanged prints a webhook after a change.
func (m *Main) printChanged(e webhook.Endpoint, id string, err error) error {
	if err = m.unrecorded(err); err != nil {
		return badChange(err)
	}
	if e.ID == "" {
		e.ID, e.State = id, "deleted"
	}
	if m.global.output == outputJSON {
		return cli.JSON(m.Out, e)
	}
	_, err = fmt.Fprintf(m.Out, "webhook %s: %s\n", e.ID, e.State)
	return err
}

func (m *Main) webhookList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List webhooks", Args: cli.NoArgs}
	return m.queryRunE(cmd, func(ctx context.Context, s *session, _ []string) error {
		store, err := m.webhooks(ctx, s, false)
		if err != nil {
			return err
		}
		all, err := store.List(ctx)
		if err != nil {
			return err
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, map[string]any{"data": append([]webhook.Endpoint{}, all...)})
		}
		var rows [][]string
		for i := range all {
			e := &all[i]
			rows = append(rows, []string{e.ID, string(e.State), plain(strings.Join(e.Types, ","), 60), plain(e.URL, 80), plain(e.Reason, 80)})
		}
		return cli.Table(m.Out, "WEBHOOK STATE TYPES URL REASON", rows)
	})
}

func (m *Main) webhookShow() *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show a webhook, and how far it is on each lane", Args: cli.Args("ID")}
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		store, err := m.webhooks(ctx, s, false)
		if err != nil {
			return err
		}
		e, err := store.Show(ctx, given[0])
		if err != nil {
			return notFound(err)
		}
		at, err := store.Positions(ctx, &e)
		if err != nil {
			return err
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, struct {
				webhook.Endpoint
				Positions []push.Position `json:"positions"`
			}{e, append([]push.Position{}, at...)})
		}
		fmt.Fprintf(m.Out, "webhook       %s\nurl           %s\nstate         %s %s\ntypes         %s\ncampaigns     %s\nbatch         %d\ncodes         %t\ncreated       %s by %s\nfailing since %s\nlast test     %s\nlast retry    %s\n",
			e.ID, plain(e.URL, 200), e.State, plain(e.Reason, 200), strings.Join(e.Types, ","), orText(strings.Join(e.Campaigns, ","), "all"), e.Batch, e.Codes,
			orZero(e.Created), plain(e.By, 128), orZero(e.FailingSince), orText(plain(e.LastTest, 200), "-"), orText(plain(e.LastRetry, 200), "-"))
		var rows [][]string
		for _, p := range at {
			rows = append(rows, []string{fmt.Sprint(p.Lane), fmt.Sprint(p.Delivered), fmt.Sprint(p.Waiting), orZero(p.Oldest), fmt.Sprint(p.Failed), fmt.Sprint(p.Dead)})
		}
		return cli.Table(m.Out, "LANE DELIVERED WAITING OLDEST FAILED DEAD", rows)
	})
}

func notFound(err error) error {
	if errors.Is(err, webhook.ErrNotFound) {
		return &cli.UsageError{Err: err}
	}
	return err
}
