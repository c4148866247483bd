package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func (m *Main) customerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show the coupons of a customer", Args: args("ID")}
	return group("customer", "Look at a customer", m.asks(cmd, func(ctx context.Context, s *session, given []string) error {
		c, err := s.Customer(ctx, given[0])
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
		if err := m.printTable("CAMPAIGN N CODE STATUS REDEEMED EXPIRES", rows); err != nil {
			return err
		}
		return m.printHistory(c.History)
	}))
}
