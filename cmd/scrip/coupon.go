package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

// couponCommands are the commands on one coupon.
func (m *Main) couponCommands() []*cobra.Command {
	return []*cobra.Command{
		m.claimCommand(), m.redeemCommand(), m.rollbackCommand(), m.voidCommand(), m.extendCommand(),
		cli.Group("coupon", "Show or validate a coupon", m.couponShow(), m.couponValidate()),
	}
}

func (m *Main) claimCommand() *cobra.Command {
	var c wire.Command
	cmd := &cobra.Command{
		Use: "claim CAMPAIGN --customer ID", Short: "Claim a coupon for a customer", Args: cli.Args("CAMPAIGN"),
		Long: `Claim a coupon for a customer. Where a customer may have one coupon, a second claim returns the same code. With --id a
claim can be retried after any failure: it takes effect once.`,
		Example: `  scrip claim summer --customer alice
  scrip claim summer --customer alice --attributes '{"channel":"app"}' --id 0192f3c2 -o json`,
	}
	cmd.Flags().StringVar(&c.CustomerID, "customer", "", "`ID` of the customer")
	cmd.Flags().Var(cli.RawJSON(&c.Attributes), "attributes", "flat JSON object stored with the claim, for reports, at most 1 KiB")
	return m.commandRunE(cmd, func(given []string) (wire.Command, error) {
		c.Type, c.Campaign = wire.Claim, given[0]
		return c, cli.Require(cmd, "customer")
	})
}

// couponFlags are for commands that name a coupon by its code, or by campaign and number.
func couponFlags(f *pflag.FlagSet, c *wire.Command) {
	f.StringVar(&c.Campaign, "campaign", "", "`NAME` of the coupon's campaign; required for imported codes, and with --n")
	f.Var(cli.Number(&c.N, 0, 1, wire.MaxCodes), "n", "number of the coupon in its campaign, instead of CODE")
}

// codeArgs accepts one code, which may be typed in several arguments: MUS3 V5JE SQKN. It refuses two codes: the symbols
// before the last 12 would pass for a prefix, and the first code would be ignored silently.
func codeArgs(cmd *cobra.Command, given []string) error {
	switch byN := cmd.Flags().Changed("n"); {
	case byN && len(given) > 0:
		return cli.Usagef("%s takes CODE, or --campaign and --n, not both", cli.Path(cmd))
	case byN:
		return cli.Require(cmd, "campaign")
	case len(given) == 0:
		return cli.Usagef("%s needs CODE, or --campaign and --n", cli.Path(cmd))
	}
	for _, word := range given[:len(given)-1] {
		if len(strings.ReplaceAll(word, "-", "")) >= code.Symbols {
			return cli.Usagef("%s takes one CODE, not also %q; if both are one code, quote it", cli.Path(cmd), given[len(given)-1])
		}
	}
	return nil
}

func codeOf(given []string) string { return strings.Join(given, " ") }

func (m *Main) orderCommand(use string, t wire.CommandType, short, long string) *cobra.Command {
	var c wire.Command
	cmd := &cobra.Command{Use: use + " CODE --order ID", Short: short, Long: long, Args: codeArgs,
		Example: "  scrip " + use + " 7KQ2-9F3M-XW4T --order 4711"}
	cmd.Flags().StringVar(&c.OrderID, "order", "", "`ID` of the order the coupon is used for")
	cmd.Flags().StringVar(&c.CustomerID, "customer", "", "`ID` of the customer, who must then be the holder")
	couponFlags(cmd.Flags(), &c)
	return m.commandRunE(cmd, func(given []string) (wire.Command, error) {
		c.Type, c.Code = t, codeOf(given)
		return c, cli.Require(cmd, "order")
	})
}

func (m *Main) redeemCommand() *cobra.Command {
	return m.orderCommand("redeem", wire.Redeem, "Redeem a coupon for an order",
		"Redeem a coupon for an order. A second request for the same order is a repeat. Case, spaces and hyphens in CODE do not matter.")
}

func (m *Main) rollbackCommand() *cobra.Command {
	return m.orderCommand("rollback", wire.Rollback, "Roll back a redemption",
		"Roll back the redemption of an order: the coupon can be redeemed again, unless it has expired.")
}

func (m *Main) voidCommand() *cobra.Command {
	var c wire.Command
	cmd := &cobra.Command{Use: "void CODE", Short: "Void a coupon permanently", Args: codeArgs,
		Example: "  scrip void 7KQ2-9F3M-XW4T --reason fraud\n  scrip void --campaign summer --n 17 --reason fraud"}
	cmd.Flags().StringVar(&c.Reason, "reason", "", "`TEXT` stored with the event")
	couponFlags(cmd.Flags(), &c)
	return m.commandRunE(cmd, func(given []string) (wire.Command, error) {
		c.Type, c.Code = wire.Void, codeOf(given)
		return c, nil
	})
}

func (m *Main) extendCommand() *cobra.Command {
	var c wire.Command
	cmd := &cobra.Command{Use: "extend CODE --expires TIME", Short: "Change the expiry of a coupon", Args: codeArgs,
		Long:    "Give a coupon an expiry of its own. An expired coupon becomes valid again.",
		Example: "  scrip extend 7KQ2-9F3M-XW4T --expires +72h"}
	cmd.Flags().Var(m.instant(&c.ExpiresAt, false), "expires", "when the coupon expires; must be in the future")
	couponFlags(cmd.Flags(), &c)
	return m.commandRunE(cmd, func(given []string) (wire.Command, error) {
		c.Type, c.Code = wire.Extend, codeOf(given)
		return c, cli.Require(cmd, "expires")
	})
}

func (m *Main) couponShow() *cobra.Command {
	var c wire.Command
	var page client.Page
	cmd := &cobra.Command{
		Use: "show CODE", Short: "Show a coupon, its status and its history", Args: codeArgs,
		Long: `Show a coupon, its status, and its history, newest first: claimed, redeemed, rolled back, voided, extended,
expired, its reminders set, cancelled, fired, dropped. Each event with its time, its position in the log (lane/sequence/line
of the event stream) and the id of the command that caused it.

The coupon's lane answers with the status. The history comes from the read tables, which may lag a little; if they are
unavailable, the output has a note instead of the history. If there are more events, the last line has the flag for the
next page.`,
		Example: `  scrip coupon show 7KQ2-9F3M-XW4T
  scrip coupon show --campaign summer --n 17 --limit 10 -o json`,
	}
	couponFlags(cmd.Flags(), &c)
	pageFlags(cmd, &page)
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		coupon, err := s.CouponPage(ctx, codeOf(given), page, client.Campaign(c.Campaign), client.N(c.N))
		if err != nil {
			return err
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, coupon)
		}
		rows := [][2]string{{coupon.Code, ""}, {"status", coupon.Status}, {"campaign", coupon.Campaign}, {"n", fmt.Sprint(coupon.N)},
			{"expires", orDash(coupon.ExpiresAt)}, {"redeemed", times(coupon.RedeemedCount)}}
		if len(coupon.Benefit) > 0 {
			rows = append(rows, [2]string{"benefit", string(coupon.Benefit)})
		}
		if err := cli.Fields(m.Out, rows); err != nil {
			return err
		}
		return m.printHistory(coupon.History)
	})
}

func (m *Main) couponValidate() *cobra.Command {
	var c wire.Command
	cmd := &cobra.Command{Use: "validate CODE", Short: "Show the outcome that redeem would have, without a change", Args: codeArgs}
	cmd.Flags().StringVar(&c.OrderID, "order", "", "`ID` of the order, to check whether the coupon was redeemed for it")
	cmd.Flags().StringVar(&c.CustomerID, "customer", "", "`ID` of the customer, who must then be the holder")
	couponFlags(cmd.Flags(), &c)
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		out, err := s.Validate(ctx, codeOf(given), c.OrderID, client.ID(s.id), client.Campaign(c.Campaign), client.N(c.N), client.Holder(c.CustomerID))
		if err != nil {
			return err
		}
		return m.answer(out)
	})
}
