package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

func (m *Main) webhookReplay() *cobra.Command {
	var from wire.Instant
	cmd := &cobra.Command{
		Use: "replay ID", Short: "Deliver again what happened from a time on", Args: cli.Args("ID"),
		Long: `Deliver again what happened from a time on, under the same event ids. Events older than --max-age-hours are delivered, too:
their age counts from the replay. What waits is part of it: a --from after the oldest event that is not delivered is refused.
Dead letters stay in the list.`,
		Example: `  scrip webhook replay 7kq29f3m --from -2h`,
	}
	cmd.Flags().Var(m.moment(&from), "from", "time from which on, such as -2h (required)")
	by := byFlag(cmd)
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		if err := cli.Require(cmd, "from"); err != nil {
			return err
		}
		return m.change(ctx, s, author(*by), webhook.Change{Webhook: given[0], What: webhook.Replay, From: from.Time()})
	})
}

// resultPoll is the pause between looks for the result of a request.
const resultPoll = 250 * time.Millisecond

// requested makes a change that requests something of a server, and waits for its result. done reports whether there is one.
func (m *Main) requested(ctx context.Context, s *session, who webhook.Author, c webhook.Change, done func(*webhook.Endpoint) bool) (webhook.Endpoint, error) {
	store, err := m.webhooks(ctx, s, false)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	if _, err := store.Make(ctx, who, c, 0); m.unrecorded(err) != nil {
		return webhook.Endpoint{}, badChange(err)
	}
	for {
		e, err := store.Show(ctx, c.Webhook)
		if err == nil && done(&e) || err != nil && ctx.Err() == nil {
			return e, err
		}
		select {
		case <-ctx.Done():
			return e, fmt.Errorf("no server has done it within --timeout; is one with role api running? `scrip webhook show %s` shows the result later", c.Webhook)
		case <-time.After(resultPoll):
		}
	}
}

func (m *Main) printResult(id, result string) error {
	if m.global.output == outputJSON {
		return cli.JSON(m.Out, map[string]string{"webhook": id, "result": result})
	}
	_, err := fmt.Fprintln(m.Out, plain(result, 300))
	return err
}

func (m *Main) webhookTest() *cobra.Command {
	cmd := &cobra.Command{
		Use: "test ID", Short: "Send a test request, and print its result", Args: cli.Args("ID"),
		Long: `Send a test request of type webhook.test, and print its result. A server sends it, also to a webhook that is paused. It is not
retried.`,
	}
	by := byFlag(cmd)
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		e, err := m.requested(ctx, s, author(*by), webhook.Change{Webhook: given[0], What: webhook.Test}, func(e *webhook.Endpoint) bool { return !e.Testing() })
		if err != nil {
			return err
		}
		if err := m.printResult(e.ID, e.LastTest); err != nil || e.LastTest == webhook.TestDelivered || m.global.output == outputJSON {
			return err
		}
		return errors.New("the test request was not delivered")
	})
}

func (m *Main) webhookRetry() *cobra.Command {
	cmd := &cobra.Command{
		Use: "retry ID", Short: "Deliver dead letters again, each once", Args: cli.Args("ID"),
		Long: `Deliver the events in the dead letters of a webhook again, each once and whatever their age, under the same event ids, and
print the result. A server does it, also for a webhook that is paused. What fails again stays in the list.`,
	}
	by := byFlag(cmd)
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		e, err := m.requested(ctx, s, author(*by), webhook.Change{Webhook: given[0], What: webhook.Retry}, func(e *webhook.Endpoint) bool { return !e.Retrying() })
		if err != nil {
			return err
		}
		return m.printResult(e.ID, e.LastRetry)
	})
}

// lettersMost is how many dead letters are listed.
const lettersMost = 1000

func (m *Main) webhookDeadLetters() *cobra.Command {
	var after uint64
	cmd := &cobra.Command{
		Use: "deadletters ID", Short: "List events that were given up", Args: cli.Args("ID"),
		Long: `List events that were given up, with the reason, oldest first, 1,000 messages at most. scrip webhook retry delivers them again;
scrip webhook replay delivers all events since a time again.`,
	}
	cmd.Flags().Uint64Var(&after, "after", 0, "show the page after the one that ended with this `ID`")
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		store, err := m.webhooks(ctx, s, false)
		if err != nil {
			return err
		}
		all, next, err := store.Letters(ctx, given[0], after, lettersMost)
		if err != nil {
			return notFound(err)
		}
		if m.global.output == outputJSON {
			out := map[string]any{"data": append([]push.DeadLetter{}, all...), "more": next != 0}
			if next != 0 {
				out["next"] = next
			}
			return cli.JSON(m.Out, out)
		}
		if next != 0 {
			fmt.Fprintf(m.Err, "scrip: there are more: --after %d\n", next)
		}
		var rows [][]string
		for _, l := range all {
			rows = append(rows, []string{fmt.Sprintf("%s/%d", l.Stream, l.Sequence), fmt.Sprint(len(l.Reminders)), fmt.Sprint(l.Tries), orZero(l.At), plain(l.Error, 120)})
		}
		return cli.Table(m.Out, "MESSAGE EVENTS TRIES AT ERROR", rows)
	})
}
