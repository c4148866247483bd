package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// couponFlags are for queries that name a coupon by its code, or by campaign and number.
func couponFlags(f *pflag.FlagSet, c *wire.Command) {
	f.StringVar(&c.Campaign, "campaign", "", "`NAME` of the coupon's campaign; required for imported codes, and with --n")
	f.Var(cli.Number(&c.N, 0, 1, wire.MaxCodes), "n", "number of the coupon in its campaign, instead of CODE")
}

func (m *Main) couponShow() *cobra.Command {
	var c wire.Command
	var page client.Page
	cmd := &cobra.Command{
		Use: "show CODE", Short: "Show a coupon, its status and its history", Args: codeArgs,
		Long: `Show a coupon, its status, and its history, newest first. Each event with its time, its position in the log
(lane/sequence/line of the event stream) and the id of the command that caused it. What happened is one of:
  ` + strings.Join(readmodel.Changes(), " ") + `

The coupon's lane answers with the status. The history comes from the read tables, which may lag a little; if they are
unavailable, the output has a note instead of the history. If there are more events, the last line has the flag for the
next page.`,
		Example: `  scrip coupon show 7KQ2-9F3M-XW4T
  scrip coupon show --campaign summer --n 17 --limit 10 -o json`,
	}
	cmd.Flags().StringVar(&c.OrderID, "order", "", "`ID` of an order, to show whether it redeemed the coupon")
	couponFlags(cmd.Flags(), &c)
	pageFlags(cmd, &page)
	return m.query(cmd, func(ctx context.Context, s *session, given []string) error {
		coupon, err := s.CouponHistory(ctx, codeOf(given), page, client.Campaign(c.Campaign), client.N(c.N), client.Order(c.OrderID))
		if err != nil {
			return err
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, coupon)
		}
		rows := [][2]string{{coupon.Code, ""}, {"status", coupon.Status}, {"campaign", coupon.Campaign}, {"n", fmt.Sprint(coupon.N)},
			{"expires", orDash(coupon.ExpiresAt)}, {"redeemed", times(coupon.RedeemedCount)}, {"order", coupon.OrderStatus}, {"benefit", string(coupon.Benefit)}}
		if err := cli.Fields(m.Out, filled(rows)); err != nil {
			return err
		}
		return m.printHistory(coupon.History)
	})
}

func (m *Main) couponValidate() *cobra.Command {
	var c wire.Command
	cmd := &cobra.Command{Use: "validate CODE", Short: "Show whether redeem would be accepted, without a change", Args: codeArgs}
	cmd.Flags().StringVar(&c.OrderID, "order", "", "`ID` of the order, to check whether the coupon was redeemed for it")
	cmd.Flags().StringVar(&c.CustomerID, "customer", "", "`ID` of the customer, who must then be the holder")
	couponFlags(cmd.Flags(), &c)
	return m.query(cmd, func(ctx context.Context, s *session, given []string) error {
		out, err := s.Validate(ctx, codeOf(given), c.OrderID, client.ID(s.id), client.Campaign(c.Campaign), client.N(c.N), client.Holder(c.CustomerID))
		if err != nil {
			return err
		}
		return m.answer(out)
	})
}

func (m *Main) customerCommand() *cobra.Command {
	var page client.Page
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show the coupons of a customer and their history", Args: cli.Args("ID"),
		Long: `Show the coupons of a customer in all campaigns, and the history of these coupons and of the customer's reminders, newest
first: each event with its time, its position in the log (lane/sequence/line of the event stream) and the id of the command
that caused it.

Coupons are listed by campaign, newest first within each, from the state of their lanes. The history comes from the read
tables, which may lag a little; if they are unavailable, the output has a note instead. Both are shown by page: if there is
more, the last line has the flag for the next page (with -o json, next).`,
		Example: `  scrip customer show alice
  scrip customer show alice --limit 500 -o json`,
	}
	pageFlags(cmd, &page)
	return cli.Group("customer", "Show a customer", m.query(cmd, func(ctx context.Context, s *session, given []string) error {
		c, err := s.CustomerHistory(ctx, given[0], page)
		if err != nil {
			return err
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, c)
		}
		var rows [][]string
		for _, c := range c.Items {
			rows = append(rows, []string{c.Campaign, fmt.Sprint(c.N), c.Code, c.Status, fmt.Sprint(c.RedeemedCount), orDash(c.ExpiresAt)})
		}
		if len(rows) > 0 {
			if err := cli.Table(m.Out, "CAMPAIGN N CODE STATUS REDEEMED EXPIRES", rows); err != nil {
				return err
			}
		} else if page.After == "" {
			fmt.Fprintf(m.Out, "customer %s has no coupons\n", given[0])
		}
		if string(c.History.History) == "[]" && page.After == "" {
			fmt.Fprintln(m.Out, "the read tables have no events of this customer")
		}
		return m.printHistory(c.History)
	}))
}

// pageFlags adds the flags of commands that print pages.
func pageFlags(cmd *cobra.Command, page *client.Page) {
	cmd.Flags().Var(&cli.Value{Kind: "N", Parse: func(s string) error {
		var n uint32
		err := cli.Number(&n, 0, 1, 1000).Set(s)
		page.Limit = int(n)
		return err
	}}, "limit", "the most entries of a page (1 to 1000, default 100)")
	cmd.Flags().StringVar(&page.After, "after", "", "the next of the page before")
}

// aboutEntry is the text of the last column: the fields without a column of their own.
func aboutEntry(e *readmodel.Entry) string {
	var about []string
	add := func(name, value string) {
		if value != "" {
			about = append(about, name+" "+value)
		}
	}
	add("order", e.OrderID)
	add("reason", e.Reason)
	add("by", e.By)
	add("request", e.RequestID)
	if e.ByN {
		add("named by n", fmt.Sprint(e.N))
	}
	add("before it", e.Kind)
	if e.DueAt != nil {
		add("due", orZero(*e.DueAt))
	}
	if e.ExpiresAt != nil {
		until := "until"
		if e.What == "expired" {
			until = "at"
		}
		add(until, orZero(*e.ExpiresAt))
	}
	return strings.Join(about, ", ")
}

// printHistory prints the history of the read tables or why there is none, and the flag for the next page.
func (m *Main) printHistory(h client.History) error {
	var entries []readmodel.Entry
	if h.Unavailable != "" {
		fmt.Fprintf(m.Out, "history is not available: %s\n", cli.Line(h.Unavailable))
	} else if err := json.Unmarshal(h.History, &entries); err != nil {
		fmt.Fprintln(m.Out, "the history has a format that this version cannot read; -o json shows it")
	}
	if len(entries) > 0 {
		var rows [][]string
		for i := range entries {
			e := &entries[i]
			rows = append(rows, []string{
				orZero(e.At), e.What, e.Campaign, orText(e.Code, "-"), orText(e.CustomerID, "-"),
				fmt.Sprintf("%d/%d/%d", e.Lane, e.Sequence, e.Line), orText(e.ID, "-"), aboutEntry(e),
			})
		}
		fmt.Fprintln(m.Out)
		if err := cli.Table(m.Out, "AT WHAT CAMPAIGN CODE CUSTOMER POSITION ID ABOUT", rows); err != nil {
			return err
		}
	}
	if h.Note != "" {
		fmt.Fprintln(m.Out, cli.Line(h.Note))
	}
	m.more(h.Next)
	return nil
}

func (m *Main) optOutCommand() *cobra.Command {
	print := func(o ops.OptOutShown) error {
		if !o.OptedOut {
			_, err := fmt.Fprintf(m.Out, "%s gets reminders\n", cli.Line(o.CustomerID))
			return err
		}
		return cli.Fields(m.Out, [][2]string{{"customer", o.CustomerID}, {"no reminders since", o.At.UTC().Format(time.RFC3339)}, {"by", o.By}, {"reason", o.Reason}})
	}
	one := func(use, short string) *cobra.Command {
		return command(m, action[ops.OptOutShown]{use: use + " CUSTOMER", name: "optout." + use, args: []string{"customer_id"}, short: short, print: print})
	}
	return cli.Group("optout", "Change the list of customers who get no reminders",
		one("add", "Let a customer get no reminders, of any campaign"), one("remove", "Let a customer get reminders again"),
		one("show", "Show whether a customer gets no reminders"))
}

func (m *Main) reminderCommand() *cobra.Command {
	return cli.Group("reminder", "List reminders", command(m, action[ops.Page[domain.ReminderView]]{
		use: "list CAMPAIGN", name: "reminder.list", args: []string{"campaign"}, short: "List the reminders of a campaign, newest first",
		long: `List the reminders of a campaign, those that were set last first, and what became of them. They come from the read tables,
which may lag a little. See scrip remind and scrip unremind.`,
		example: `  scrip reminder list summer --state pending
  scrip reminder list summer --customer alice -o json`,
		print: func(page ops.Page[domain.ReminderView]) error {
			var rows [][]string
			for _, r := range page.Items {
				rows = append(rows, []string{r.CustomerID, r.Kind, r.Before, orDash(r.DueAt), r.State, orDash(r.SettledAt)})
			}
			return m.table(page.Next, "CUSTOMER KIND BEFORE DUE STATE SETTLED", rows)
		},
	}))
}
