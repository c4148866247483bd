package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/streams/client"
)

func (m *Main) customerCommand() *cobra.Command {
	var page client.Page
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show the coupons of a customer and what happened to them", Args: args("ID"),
		Long: `Show the coupons of a customer in all campaigns, and what happened to them and to the customer's reminders, newest
first: each event with its time, its position in the log (lane/sequence/line of the event stream) and the id of the command
that caused it.

Coupons are listed by campaign, newest first within each, as their lanes know them. What happened is in the read tables,
which may be some moments behind; while they are away it is left out, and that is said. Both are shown a page at a time:
where something is left, the last line says how to go on (with -o json, more and next).`,
		Example: `  scrip customer show alice
  scrip customer show alice --limit 500 -o json`,
	}
	pageFlags(cmd, &page)
	return group("customer", "Look at a customer", m.asks(cmd, func(ctx context.Context, s *session, given []string) error {
		c, err := s.CustomerPage(ctx, given[0], page)
		if err != nil {
			return err
		}
		if m.global.output == outputJSON {
			return m.printJSON(c)
		}
		var rows [][]string
		for _, c := range c.Coupons {
			rows = append(rows, []string{c.Campaign, fmt.Sprint(c.N), c.Code, c.Status, fmt.Sprint(c.RedeemedCount), orDash(c.ExpiresAt)})
		}
		if len(rows) > 0 {
			if err := m.printTable("CAMPAIGN N CODE STATUS REDEEMED EXPIRES", rows); err != nil {
				return err
			}
		} else if page.Before == "" {
			fmt.Fprintf(m.Out, "customer %s has no coupons\n", given[0])
		}
		if string(c.History.History) == "[]" && page.Before == "" {
			fmt.Fprintln(m.Out, "nothing happened that the read tables know of")
		}
		return m.printHistory(c.History)
	}))
}
