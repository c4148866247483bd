package main

import (
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

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
