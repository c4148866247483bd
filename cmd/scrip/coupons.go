package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// listed prints a page of a list with these fields as columns.
func listed[T any](m *Main, fields string) func(ops.Page[T]) error {
	return func(page ops.Page[T]) error {
		var rows [][]string
		for i := range page.Items {
			text, err := json.Marshal(&page.Items[i])
			var values map[string]json.RawMessage
			if err = cmp.Or(err, json.Unmarshal(text, &values)); err != nil {
				return err
			}
			var row []string
			for _, name := range strings.Fields(fields) {
				row = append(row, orText(cell(values[name]), "-"))
			}
			rows = append(rows, row)
		}
		return m.table(page.Next, strings.ToUpper(fields), rows)
	}
}

// cell is a value of JSON in a table: a text as it is, counts by name as "name count", anything else as in JSON.
func cell(value json.RawMessage) string {
	var text string
	var counts map[string]json.Number
	switch {
	case json.Unmarshal(value, &text) == nil:
		return text
	case json.Unmarshal(value, &counts) == nil:
		var all []string
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			all = append(all, name+" "+counts[name].String())
		}
		return strings.Join(all, ", ")
	}
	return string(value)
}

func (m *Main) couponList() *cobra.Command {
	return command(m, action[ops.Page[ops.Coupon]]{
		use: "list", name: "coupon.list", short: "List coupons of a campaign, a customer or an order",
		long: `List coupons of a campaign, a customer or an order, by campaign and number, from the read tables. With --status or --last-four a
campaign is read as far as --limit needs, which may take a while; what was found is printed when it is interrupted.`,
		example: `  scrip coupon list --campaign summer --last-four LRR5
  scrip coupon list --campaign summer --status voided --limit 1000 -o json
  scrip coupon list --order 4711`,
		print: listed[ops.Coupon](m, "campaign n code status customer_id claimed_at expires_at redeemed_count void_reason"),
	})
}

// couponsCommand changes many coupons.
func (m *Main) couponsCommand() *cobra.Command {
	change := func(verb, flag, short string) *cobra.Command {
		name := "coupons." + verb
		cmd := &cobra.Command{
			Use: verb + " CAMPAIGN", Short: short, Args: cli.Args("CAMPAIGN"),
			Long: short + `. They are selected by --n, by --codes, by a filter (--status --customer --claimed-from --claimed-before), or by --all.
With --dry-run they are counted, and nothing is changed. Else --most is needed: if more are selected, nothing is changed.

The read tables select them. The job waits until these have what the log had at its start, for a minute at most. If they
still lack messages then, it goes on, and its result says how many (behind): send it again later for the coupons in them.

A server with read tables does it. ` + onServer + `

If it fails or its server dies, send the same command again within a day: it goes on where it was, and no coupon is changed twice.`,
			Example: fmt.Sprintf("  scrip coupons %[1]s summer --status claimed --claimed-before 2026-11-01T00:00:00Z --dry-run\n"+
				"  scrip coupons %[1]s summer --status claimed --claimed-before 2026-11-01T00:00:00Z --most 5000 %[2]s\n"+
				"  scrip coupons %[1]s summer --n 17,18,21 --most 3 %[2]s", verb, flag),
		}
		idFlag(cmd, false)
		given, required := m.actionFlags(cmd, name, "campaign")
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			given["campaign"] = args[0]
			if err := cli.Require(cmd, required...); err != nil {
				return err
			}
			return m.run(cmd, name, given)
		}
		return cmd
	}
	return cli.Group("coupons", "Void or extend many coupons of a campaign",
		change("void", "--reason recall", "Void many coupons of a campaign permanently"),
		change("extend", "--expires +72h", "Change the expiry of many coupons of a campaign"))
}

func (m *Main) printChanged(r ops.CouponsChanged) error {
	rows := [][2]string{{fmt.Sprintf("selected %d", r.Matched), ""}, {"changed", fmt.Sprint(r.Done)}, {"so already", fmt.Sprint(r.Repeated)}}
	for _, why := range slices.Sorted(maps.Keys(r.Refused)) {
		var n []string
		for _, c := range r.First {
			if c.Refusal == why {
				n = append(n, fmt.Sprint(c.N))
			}
		}
		rows = append(rows, [2]string{"refused: " + string(why), fmt.Sprintf("%d, such as %s", r.Refused[why], orText(strings.Join(n, " "), "-"))})
	}
	const may = "coupons of the last moments before may not be selected"
	switch {
	case r.Behind == nil:
		rows = append(rows, [2]string{"tables behind", "unknown: " + may})
	case *r.Behind > 0:
		rows = append(rows, [2]string{"tables behind", fmt.Sprintf("%d messages: %s", *r.Behind, may)})
	}
	return cli.Fields(m.Out, rows)
}

func (m *Main) campaignClone() *cobra.Command {
	return command(m, action[domain.CampaignView]{
		use: "clone CAMPAIGN TO", name: "campaign.clone", args: []string{"campaign", "to"}, short: "Create a campaign with the settings of another one",
		long: `Create a campaign with the settings of another one, but those that are given. Imported codes are not copied. Times that have
passed are refused: give them. The same request again is a repeat, as of scrip campaign create.`,
		example: `  scrip campaign clone summer winter --opens 2026-12-01T00:00:00Z --expires 2027-01-31T00:00:00Z`,
		print: func(c domain.CampaignView) error {
			_, err := fmt.Fprintf(m.Out, "created %s with %d codes; see scrip campaign show %s\n", c.Campaign, c.Codes, c.Campaign)
			return err
		},
	})
}

func (m *Main) campaignDiff() *cobra.Command {
	return command(m, action[ops.Page[ops.SettingDiff]]{
		use: "diff CAMPAIGN WITH", name: "campaign.diff", args: []string{"campaign", "with"}, short: "List the settings in which two campaigns differ",
		print: listed[ops.SettingDiff](m, "setting campaign with"),
	})
}

func (m *Main) campaignStatistics() *cobra.Command {
	return command(m, action[ops.Page[ops.Day]]{
		use: "statistics CAMPAIGN", name: "campaign.statistics", args: []string{"campaign"}, short: "Count what happened in a campaign by day, newest first",
		long:    "Count what happened in a campaign by day of UTC, newest first: in all, or by the values of an attribute of its claims.",
		example: "  scrip campaign statistics summer\n  scrip campaign statistics summer --attribute channel",
		print:   listed[ops.Day](m, "day value claimed redeemed rolled_back voided refused"),
	})
}

func (m *Main) campaignChanges() *cobra.Command {
	return command(m, action[ops.Page[ops.CampaignChange]]{
		use: "changes CAMPAIGN", name: "campaign.changes", args: []string{"campaign"}, short: "List who changed a campaign, and what, newest first",
		print: listed[ops.CampaignChange](m, "at type by settings"),
	})
}

func (m *Main) dueCommand() *cobra.Command {
	return command(m, action[ops.DuePage]{
		use: "due", name: "due.list", short: "List what is due and not done, and what falls due within an hour",
		print: func(due ops.DuePage) error {
			if err := listed[ops.Overdue](m, "oldest_due_at lane priority kind due")(ops.Page[ops.Overdue]{Items: due.Backlog}); err != nil {
				return err
			}
			return listed[ops.DueSecond](m, "second priority kind due")(due.Page)
		},
	})
}
