package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

func (m *Main) webhookCommand() *cobra.Command {
	g := cli.Group("webhook", "Deliver events to HTTP endpoints of others",
		m.webhookCreate(), m.webhookList(), m.webhookShow(), m.webhookRotate(),
		m.webhookAct("pause", webhook.Pause, "Deliver nothing for now", "Deliver nothing for now. The position stays, and events older than --max-age-hours become dead letters after the pause."),
		m.webhookAct("resume", webhook.Resume, "Deliver again", "Deliver again, also to a webhook that a server disabled."),
		m.webhookAct("delete", webhook.Delete, "Remove a webhook", "Remove a webhook and its position. Its dead letters stay."),
		m.webhookReplay(), m.webhookTest(), m.webhookDeadLetters())
	g.Long = `Deliver events to HTTP endpoints of others, by the Standard Webhooks specification 1.0.0: signed POST requests with the headers
webhook-id, webhook-timestamp and webhook-signature. Servers of role api deliver. A change is in force within two seconds.

An event is delivered at least once, and its webhook-id is the same each time. 2xx means delivered, 410 disables the webhook.
While the endpoint is away, or asks for a rest by 429 or 503 with Retry-After, one request at a time probes it. What fails while
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
	if !needsKey {
		store := webhook.Open(js, nil)
		store.Now = m.Now
		return store, nil
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
	store := webhook.Open(js, webhook.NewKey(key.Key, log.UUID))
	store.Now = m.Now
	return store, nil
}

// byFlag is on every command that changes a webhook.
func byFlag(cmd *cobra.Command) *string {
	by := new(string)
	cmd.Flags().Var(&cli.Value{Kind: "NAME", Parse: func(s string) error {
		*by = s
		return settings.CheckBy(s)
	}}, "by", "author of the change, for the history (default user@host)")
	return by
}

func author(by string) string {
	if by == "" {
		return userAtHost()
	}
	return by
}

// badChange turns a change that is not possible into a usage error.
func badChange(err error) error {
	var invalid *webhook.InvalidError
	if errors.As(err, &invalid) {
		return &cli.UsageError{Err: err}
	}
	return err
}

// secretShown is a webhook with its secret, shown once.
type secretShown struct {
	webhook.Endpoint
	Secret string `json:"secret"`
}

func (m *Main) webhookCreate() *cobra.Command {
	var want webhook.Settings
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
	f := cmd.Flags()
	f.StringSliceVar(&want.Types, "types", nil, "event `TYPES`, separated by commas (required)")
	f.StringSliceVar(&want.Campaigns, "campaign", nil, "`NAMES` of campaigns (default all)")
	f.IntVar(&want.Batch, "batch", 1, "most events in one request, 1 to 500")
	f.IntVar(&want.Rate, "rate", 50, "most requests a second, 1 to 1000")
	f.IntVar(&want.Concurrency, "concurrency", 4, "most requests at once, 1 to 64")
	f.IntVar(&want.MaxAgeHours, "max-age-hours", 168, "after how many hours an event is a dead letter instead, 1 to 720")
	f.BoolVar(&want.Codes, "codes", false, "include codes and attributes")
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
		e, secret, err := store.Create(ctx, want, author(*by))
		if err != nil {
			return badChange(err)
		}
		return m.printSecret(e, secret.Text())
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
		e, secret, err := store.Rotate(ctx, given[0], author(*by))
		if err != nil {
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
		return m.change(ctx, s, webhook.Change{Webhook: given[0], What: what, By: author(*by)})
	})
}

func (m *Main) change(ctx context.Context, s *session, c webhook.Change) error {
	store, err := m.webhooks(ctx, s, false)
	if err != nil {
		return err
	}
	e, err := store.Append(ctx, c)
	if err != nil {
		return badChange(err)
	}
	if e.ID == "" {
		e.ID, e.State = c.Webhook, "deleted"
	}
	if m.global.output == outputJSON {
		return cli.JSON(m.Out, e)
	}
	_, err = fmt.Fprintf(m.Out, "webhook %s: %s\n", e.ID, e.State)
	return err
}

func (m *Main) webhookReplay() *cobra.Command {
	var from wire.Instant
	cmd := &cobra.Command{
		Use: "replay ID", Short: "Deliver again what happened from a time on", Args: cli.Args("ID"),
		Long: `Deliver again what happened from a time on, under the same webhook-ids. Events older than --max-age-hours are delivered, too:
their age counts from the replay. What was waiting is part of it; dead letters stay in the list.`,
		Example: `  scrip webhook replay 7kq29f3m --from -2h`,
	}
	cmd.Flags().Var(m.moment(&from), "from", "time from which on, such as -2h (required)")
	by := byFlag(cmd)
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		if err := cli.Require(cmd, "from"); err != nil {
			return err
		}
		return m.change(ctx, s, webhook.Change{Webhook: given[0], What: webhook.Replay, From: from.Time(), By: author(*by)})
	})
}

// testPoll is the pause between looks for the result of a test.
const testPoll = 250 * time.Millisecond

func (m *Main) webhookTest() *cobra.Command {
	cmd := &cobra.Command{
		Use: "test ID", Short: "Send a test request, and print its result", Args: cli.Args("ID"),
		Long: `Send a test request of type webhook.test, and print its result. A server sends it, also to a webhook that is paused. It is not
retried.`,
	}
	by := byFlag(cmd)
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		store, err := m.webhooks(ctx, s, false)
		if err != nil {
			return err
		}
		if _, err := store.Append(ctx, webhook.Change{Webhook: given[0], What: webhook.Test, By: author(*by)}); err != nil {
			return badChange(err)
		}
		for {
			e, err := store.Show(ctx, given[0])
			if err != nil {
				return err
			}
			if !e.Testing() {
				if m.global.output == outputJSON {
					return cli.JSON(m.Out, map[string]string{"webhook": e.ID, "result": e.LastTest})
				}
				_, err = fmt.Fprintln(m.Out, plain(e.LastTest, 300))
				if err == nil && e.LastTest != webhook.TestDelivered {
					err = errors.New("the test request was not delivered")
				}
				return err
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("no server has sent the test request within --timeout; is one with role api running? `scrip webhook show %s` shows the result later", e.ID)
			case <-time.After(testPoll):
			}
		}
	})
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
		fmt.Fprintf(m.Out, "webhook       %s\nurl           %s\nstate         %s %s\ntypes         %s\ncampaigns     %s\nbatch         %d\ncodes         %t\ncreated       %s by %s\nfailing since %s\nlast test     %s\n",
			e.ID, plain(e.URL, 200), e.State, plain(e.Reason, 200), strings.Join(e.Types, ","), orText(strings.Join(e.Campaigns, ","), "all"), e.Batch, e.Codes,
			orZero(e.Created), plain(e.By, 128), orZero(e.FailingSince), orText(plain(e.LastTest, 200), "-"))
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

func (m *Main) webhookDeadLetters() *cobra.Command {
	cmd := &cobra.Command{
		Use: "deadletters ID", Short: "List events that were given up", Args: cli.Args("ID"),
		Long: "List events that were given up, with the reason. `scrip webhook replay` delivers them again, with all others since a time.",
	}
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		store, err := m.webhooks(ctx, s, false)
		if err != nil {
			return err
		}
		all, err := store.Letters(ctx, given[0])
		if err != nil {
			return err
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, map[string]any{"data": append([]push.DeadLetter{}, all...)})
		}
		var rows [][]string
		for _, l := range all {
			rows = append(rows, []string{fmt.Sprintf("%s/%d", l.Stream, l.Sequence), fmt.Sprint(len(l.Reminders)), fmt.Sprint(l.Tries), orZero(l.At), plain(l.Error, 120)})
		}
		return cli.Table(m.Out, "MESSAGE EVENTS TRIES AT ERROR", rows)
	})
}
