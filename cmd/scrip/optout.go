package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

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
