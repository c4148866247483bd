package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

func (m *Main) webhookCommand() *cobra.Command {
	g := cli.Group("webhook", "Deliver events to HTTP endpoints of others",
		command(m, action[ops.MadeWebhook]{
			use: "create URL", name: "webhook.create", args: []string{"url"}, by: true, short: "Create a webhook and print its secret, once",
			long: `Create a webhook and print its secret, once: give it to the receiver, which verifies signatures with it. Delivery starts with
events from now on.

Event types: coupon.*, campaign.*, ` + strings.Join(webhook.Types(), ", ") + `.

A request has one event, {"type","timestamp","data"}. With --batch above 1 it has the events of one step of a lane, up to that
many and 256 KiB: {"type":"events","timestamp","data":{"events":[{"id","type","timestamp","data"}]}}; a response 207 with
{"failed":[0,3]} names those that were not taken. Codes and attributes are left out without --codes.`,
			example: `  scrip webhook create https://shop.example/hooks --types coupon.claimed,coupon.redeemed
  scrip webhook create https://crm.example/scrip --types 'campaign.*,coupons.expired' --batch 100`,
			print: m.printSecret,
		}),
		command(m, action[ops.Page[webhook.Endpoint]]{use: "list", name: "webhook.list", short: "List webhooks", print: m.printWebhooks}),
		command(m, action[ops.WebhookDetails]{use: "show ID", name: "webhook.show", args: []string{"webhook"},
			short: "Show a webhook, and how far it is on each lane", print: m.printWebhook}),
		webhookChange(m, "update", "Change settings of a webhook", `Change the settings that are given; the others stay. What is delivered from now on follows the new ones. A type that is added
starts now; scrip webhook replay delivers what was before.`, `  scrip webhook update 7kq29f3m --rate 200 --concurrency 16
  scrip webhook update 7kq29f3m --url https://new.example/hooks`),
		command(m, action[ops.MadeWebhook]{
			use: "rotate ID", name: "webhook.rotate", args: []string{"webhook"}, by: true, short: "Replace the secret and print the new one, once",
			long: `Replace the secret and print the new one, once. For 24 hours requests are signed with both, so that the receiver may change at
any moment.`,
			print: m.printSecret,
		}),
		webhookChange(m, "pause", "Deliver nothing for now", "Deliver nothing for now. The position stays, and events older than --max-age become dead letters after the pause.", ""),
		webhookChange(m, "resume", "Deliver again", "Deliver again, also to a webhook that a server disabled.", ""),
		webhookChange(m, "delete", "Remove a webhook", "Remove a webhook and its position. Its dead letters stay.", ""),
		webhookChange(m, "replay", "Deliver again what happened from a time on", `Deliver again what happened from a time on, under the same event ids. Events older than --max-age are delivered, too:
their age counts from the replay. What waits is part of it: a --from after the oldest event that is not delivered is refused.
Dead letters stay in the list.`, "  scrip webhook replay 7kq29f3m --from -2h"),
		webhookRequest(m, "test", "Send a test request, and print its result", `Send a test request of type webhook.test, and print its result. A server sends it, also to a webhook that is paused. It is not
retried.`),
		webhookRehearse(m),
		command(m, action[ops.Page[webhook.Attempt]]{use: "attempts ID", name: "webhook.attempts", args: []string{"webhook"}, short: "List the last requests to a webhook, newest first",
			print: listed[webhook.Attempt](m, "at id events status milliseconds error")}),
		command(m, action[ops.Page[ops.WebhookLetter]]{
			use: "deadletters ID", name: "webhook.deadletters", args: []string{"webhook"}, short: "List events that were given up",
			long: `List events that were given up, with the reason, oldest first. scrip webhook retry delivers them again; scrip webhook replay
delivers all events since a time again.`,
			print: func(page ops.Page[ops.WebhookLetter]) error {
				var rows [][]string
				for _, l := range page.Items {
					rows = append(rows, []string{fmt.Sprintf("%s/%d", l.Stream, l.Sequence), fmt.Sprint(l.Events), fmt.Sprint(l.Tries), orZero(l.At), plain(l.Error, 120)})
				}
				return m.table(page.Next, "MESSAGE EVENTS TRIES AT ERROR", rows)
			},
		}),
		webhookRequest(m, "retry", "Deliver dead letters again, each once", `Deliver the events in the dead letters of a webhook again, each once and whatever their age, under the same event ids, and
print the result. A server does it, also for a webhook that is paused. What fails again stays in the list.`))
	g.Long = `Deliver events to HTTP endpoints of others, by the Standard Webhooks specification 1.0.0: signed POST requests with the headers
webhook-id, webhook-timestamp and webhook-signature. Servers of role api deliver. A change is in force within a second,
and is recorded with its author, see scrip audit. The same is under /v1/webhooks, with keys of operators.

An event is delivered at least once, and its id is the same each time: webhook-id, or id in a batch. 2xx means delivered, 410 disables the webhook.
While the endpoint is away, or answers 429 or 503 with Retry-After, one request at a time probes it. What fails while
other events are delivered is tried by the --schedule, ten times within three days unless given, and then a dead letter. After five days in which every
request failed the webhook is disabled.

Requests go to addresses outside only; serve --webhook-allow CIDR allows others.`
	return g
}

// webhookChange is a command that makes one change of one webhook.
func webhookChange(m *Main, verb, short, long, example string) *cobra.Command {
	return command(m, action[webhook.Endpoint]{
		use: verb + " ID", name: "webhook." + verb, args: []string{"webhook"}, without: []string{"version"}, by: true, short: short, long: long, example: example,
		print: func(e webhook.Endpoint) error {
			_, err := fmt.Fprintf(m.Out, "webhook %s: %s\n", e.ID, e.State)
			return err
		},
	})
}

// webhookRequest is a command that requests something of the server that has the webhook, and prints the result.
func webhookRequest(m *Main, verb, short, long string) *cobra.Command {
	return command(m, action[ops.WebhookResult]{
		use: verb + " ID", name: "webhook." + verb, args: []string{"webhook"}, by: true, short: short, long: long,
		print: func(r ops.WebhookResult) error {
			if r.Pending {
				return errors.New("no server has done it yet; is one with role api running? scrip webhook show has the result later")
			}
			_, err := fmt.Fprintln(m.Out, plain(r.Result, 300))
			if err == nil && verb == "test" && r.Result != webhook.TestDelivered {
				err = errors.New("the test request was not delivered")
			}
			return err
		},
	})
}

// webhookRehearse requests a rehearsal and waits for its result, which takes longer than an answer.
func webhookRehearse(m *Main) *cobra.Command {
	cmd := &cobra.Command{Use: "rehearse ID", Short: "See retries and a dead letter within a minute", Args: cli.Args("ID"),
		Long: `Deliver the newest event that the webhook gets once more, under its id, as in earnest but with the waits of its schedule scaled to
40 seconds in all. The requests of the first --fail tries are made, and their answers ignored as if they were lost: the receiver
shall take the event once. As many as the schedule has tries make a dead letter, which scrip webhook retry delivers.`,
		Example: "  scrip webhook rehearse 7kq29f3m\n  scrip webhook rehearse 7kq29f3m --fail 10"}
	given, _ := m.actionFlags(cmd, "webhook.rehearse", "webhook")
	m.byFlag(cmd)
	return m.query(cmd, func(ctx context.Context, s *session, args []string) error {
		given["webhook"] = args[0]
		var result ops.WebhookResult
		err := s.ask(ctx, "webhook.rehearse", given, &result)
		for waited := 0; err == nil && result.Pending; waited++ {
			if waited == rehearseLooks || natsx.Pause(cmd.Context(), time.Second) != nil {
				return fmt.Errorf("there is no result yet; scrip webhook show %s has it later", args[0])
			}
			once, cancel := context.WithTimeout(cmd.Context(), m.global.timeout)
			var now ops.WebhookDetails
			err = s.ask(once, "webhook.show", fields{"webhook": args[0]}, &now)
			cancel()
			result = ops.WebhookResult{Result: now.LastRehearsal, Pending: now.LastRehearsal == ""}
		}
		switch {
		case err != nil:
			return err
		case !strings.HasPrefix(result.Result, "try"):
			return errors.New(result.Result)
		case m.global.output == outputJSON:
			return cli.JSON(m.Out, result)
		}
		_, err = fmt.Fprintln(m.Out, strings.ReplaceAll(plain(result.Result, 4000), "; ", "\n"))
		return err
	})
}

// rehearseLooks bounds how often a rehearsal without a result is looked at, once a second: its tries may be slow.
const rehearseLooks = 120

func (m *Main) printSecret(made ops.MadeWebhook) error {
	_, err := fmt.Fprintf(m.Out, "webhook %s\nsecret  %s\n", made.ID, made.Secret)
	return err
}

func (m *Main) printWebhooks(list ops.Page[webhook.Endpoint]) error {
	var rows [][]string
	for i := range list.Items {
		e := &list.Items[i]
		rows = append(rows, []string{e.ID, string(e.State), plain(strings.Join(e.Types, ","), 60), plain(e.URL, 80), plain(e.Reason, 80)})
	}
	return m.table(list.Next, "WEBHOOK STATE TYPES URL REASON", rows)
}

func (m *Main) printWebhook(e ops.WebhookDetails) error {
	err := cli.Fields(m.Out, [][2]string{
		{"webhook " + e.ID, ""}, {"url", plain(e.URL, 200)}, {"state", string(e.State) + " " + plain(e.Reason, 200)}, {"types", strings.Join(e.Types, ",")},
		{"campaigns", orText(strings.Join(e.Campaigns, ","), "all")}, {"batch", fmt.Sprint(e.Batch)}, {"codes", fmt.Sprint(e.Codes)},
		{"created", orZero(e.Created) + " by " + plain(e.By, 128)}, {"failing since", orZero(e.FailingSince)},
		{"last test", orText(plain(e.LastTest, 200), "-")}, {"last retry", orText(plain(e.LastRetry, 200), "-")},
		{"schedule", strings.ReplaceAll(strings.Trim(fmt.Sprint(e.Schedule), "[]"), " ", ",")}, {"last rehearsal", orText(plain(e.LastRehearsal, 2000), "-")},
	})
	if err != nil {
		return err
	}
	var rows [][]string
	for _, p := range e.Positions {
		rows = append(rows, []string{fmt.Sprint(p.Lane), fmt.Sprint(p.Delivered), fmt.Sprint(p.Waiting), orZero(p.Oldest), fmt.Sprint(p.Failed), fmt.Sprint(p.Dead)})
	}
	return cli.Table(m.Out, "LANE DELIVERED WAITING OLDEST FAILED DEAD", rows)
}
