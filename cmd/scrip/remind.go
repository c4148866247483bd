package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

func (m *Main) remindCommand() *cobra.Command {
	return m.reminderCommand("remind", wire.Remind, "Remind a customer before a campaign opens or a coupon expires",
		`Remind a customer: of kind opens, before claims of the campaign open; of kind expires, before the customer's newest
coupon does. It fires once, and moves when the time it hangs on moves. Fired reminders appear on SCRIP_RMD_<lane> and
in the read table reminder.`)
}

func (m *Main) unremindCommand() *cobra.Command {
	return m.reminderCommand("unremind", wire.Unremind, "Cancel a reminder that has not fired", "")
}

func (m *Main) reminderCommand(use string, t wire.CommandType, short, long string) *cobra.Command {
	var c wire.Command
	cmd := &cobra.Command{
		Use: use + " CAMPAIGN --customer ID --kind opens|expires --before DURATION", Short: short, Long: long, Args: args("CAMPAIGN"),
		Example: "  scrip " + use + " flash --customer alice --kind opens --before 1m\n" +
			"  scrip " + use + " summer --customer alice --kind expires --before 24h",
	}
	cmd.Flags().StringVar(&c.CustomerID, "customer", "", "`ID` of the customer")
	cmd.Flags().Var(choice(&c.Kind, "", wire.KindOpens, wire.KindExpires), "kind", "what to remind of")
	cmd.Flags().Var(duration(&c.Before, 0, 0, wire.MaxBefore), "before", "how long before it")
	return m.acts(cmd, func(given []string) (wire.Command, error) {
		c.Type, c.Campaign = t, given[0]
		c.Before = c.Before.Truncate(time.Microsecond)
		return c, require(cmd, "customer", "kind", "before")
	})
}
