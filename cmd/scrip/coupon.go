package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

func (m *Main) claimCommand() *cobra.Command {
	var c wire.Command
	cmd := &cobra.Command{
		Use: "claim CAMPAIGN --customer ID", Short: "Claim a coupon for a customer", Args: args("CAMPAIGN"),
		Long: `Claim a coupon for a customer. Where a customer may have one, asking again gives the same code back. With --id a
claim may be asked again whatever became of the first: it takes effect once.`,
		Example: `  scrip claim summer --customer alice
  scrip claim summer --customer alice --attributes '{"channel":"app"}' --id 0192f3c2 -o json`,
	}
	cmd.Flags().StringVar(&c.CustomerID, "customer", "", "`ID` of the customer")
	cmd.Flags().Var(rawJSON(&c.Attributes), "attributes", "flat JSON object kept with the claim, for reports, at most 1 KiB")
	return m.acts(cmd, func(given []string) (wire.Command, error) {
		c.Type, c.Campaign = wire.Claim, given[0]
		return c, require(cmd, "customer")
	})
}

// campaignFlag is for commands that name a coupon by its code.
func campaignFlag(f *pflag.FlagSet, c *wire.Command) {
	f.StringVar(&c.Campaign, "campaign", "", "`NAME` of the code's campaign; required for imported codes")
}

// codeArgs takes one code, which people may type in several words: MUS3 V5JE SQKN. Two codes are not one: what stands
// before the last 12 symbols would pass for a prefix, and one of the two would be left out without a word.
func codeArgs(cmd *cobra.Command, given []string) error {
	if err := args("CODE")(cmd, given[:min(len(given), 1)]); err != nil {
		return err
	}
	for _, word := range given[:len(given)-1] {
		if len(strings.ReplaceAll(word, "-", "")) >= code.Symbols {
			return usagef("%s takes one CODE, not also %q; if they are one, quote it", path(cmd), given[len(given)-1])
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
	campaignFlag(cmd.Flags(), &c)
	return m.acts(cmd, func(given []string) (wire.Command, error) {
		c.Type, c.Code = t, codeOf(given)
		return c, require(cmd, "order")
	})
}

func (m *Main) redeemCommand() *cobra.Command {
	return m.orderCommand("redeem", wire.Redeem, "Redeem a coupon for an order",
		"Redeem a coupon for an order. Asking again for the same order is a repeat. Case, spaces and hyphens in CODE do not matter.")
}

func (m *Main) rollbackCommand() *cobra.Command {
	return m.orderCommand("rollback", wire.Rollback, "Take a redemption back",
		"Take the redemption of an order back: the coupon can be used again, unless it has expired.")
}

func (m *Main) voidCommand() *cobra.Command {
	var c wire.Command
	cmd := &cobra.Command{Use: "void CODE", Short: "Make a coupon worthless, for good", Args: codeArgs,
		Example: "  scrip void 7KQ2-9F3M-XW4T --reason fraud"}
	cmd.Flags().StringVar(&c.Reason, "reason", "", "`TEXT` that says why")
	campaignFlag(cmd.Flags(), &c)
	return m.acts(cmd, func(given []string) (wire.Command, error) {
		c.Type, c.Code = wire.Void, codeOf(given)
		return c, nil
	})
}

func (m *Main) extendCommand() *cobra.Command {
	var c wire.Command
	cmd := &cobra.Command{Use: "extend CODE --expires TIME", Short: "Give a coupon another expiry", Args: codeArgs,
		Long:    "Give a coupon an expiry of its own. An expired coupon lives again.",
		Example: "  scrip extend 7KQ2-9F3M-XW4T --expires +72h"}
	cmd.Flags().Var(m.instant(&c.ExpiresAt, false), "expires", "when the coupon expires; must lie in the future")
	campaignFlag(cmd.Flags(), &c)
	return m.acts(cmd, func(given []string) (wire.Command, error) {
		c.Type, c.Code = wire.Extend, codeOf(given)
		return c, require(cmd, "expires")
	})
}

func (m *Main) couponCommand() *cobra.Command {
	return group("coupon", "Look at a coupon", m.couponShow(), m.couponValidate())
}

func (m *Main) couponShow() *cobra.Command {
	var c wire.Command
	var page client.Page
	cmd := &cobra.Command{
		Use: "show CODE", Short: "Show a coupon, how it stands and what happened to it", Args: codeArgs,
		Long: `Show a coupon, how it stands, and what happened to it, newest first: claimed, redeemed, rolled back, voided, extended,
expired, its reminders set, cancelled, fired, dropped. Each event with its time, its position in the log (lane/sequence/line
of the event stream) and the id of the command that caused it.

How it stands is answered by its lane. What happened is in the read tables, which may be some moments behind; while they
are away it is left out, and that is said. Where more happened than is shown, the last line says how to go on.`,
		Example: `  scrip coupon show 7KQ2-9F3M-XW4T
  scrip coupon show 7KQ2-9F3M-XW4T --limit 10 -o json`,
	}
	campaignFlag(cmd.Flags(), &c)
	pageFlags(cmd, &page)
	return m.asks(cmd, func(ctx context.Context, s *session, given []string) error {
		coupon, err := s.CouponPage(ctx, codeOf(given), page, client.Campaign(c.Campaign))
		if err != nil {
			return err
		}
		if m.global.output == outputJSON {
			return m.printJSON(coupon)
		}
		rows := [][2]string{{coupon.Code, ""}, {"status", coupon.Status}, {"campaign", coupon.Campaign}, {"n", fmt.Sprint(coupon.N)},
			{"expires", orDash(coupon.ExpiresAt)}, {"redeemed", times(coupon.RedeemedCount)}}
		if len(coupon.Benefit) > 0 {
			rows = append(rows, [2]string{"benefit", string(coupon.Benefit)})
		}
		if err := m.printFields(rows); err != nil {
			return err
		}
		return m.printHistory(coupon.History)
	})
}

func (m *Main) couponValidate() *cobra.Command {
	var c wire.Command
	cmd := &cobra.Command{Use: "validate CODE", Short: "Say what redeem would answer, changing nothing", Args: codeArgs}
	cmd.Flags().StringVar(&c.OrderID, "order", "", "`ID` of the order, to see whether it was redeemed for that one")
	cmd.Flags().StringVar(&c.CustomerID, "customer", "", "`ID` of the customer, who must then be the holder")
	campaignFlag(cmd.Flags(), &c)
	return m.asks(cmd, func(ctx context.Context, s *session, given []string) error {
		out, err := s.Validate(ctx, codeOf(given), c.OrderID, client.ID(s.id), client.Campaign(c.Campaign), client.Holder(c.CustomerID))
		if err != nil {
			return err
		}
		return m.answer(out)
	})
}
