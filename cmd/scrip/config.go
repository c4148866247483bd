package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

func (m *Main) configCommand() *cobra.Command {
	help := settingsHelp()
	one := false // of get
	g := cli.Group("config", "Show and change settings while servers run",
		command(m, action[ops.SettingsPage]{
			use: "get [KEY]", name: "config.get", args: []string{"setting"}, optional: true, short: "Show the settings in force",
			long: `Show the settings in force, all or one: the value, whether it is the default, and who changed it last and when. A pause of
a campaign is listed if it was set and not restored to its default.`,
			example: `  scrip config get
  scrip config get reminder.grace -o json`,
			prepare: func(_ *cobra.Command, _ fields, args []string) error {
				one = len(args) == 1
				return nil
			},
			json: func(page ops.SettingsPage) any {
				if one {
					return page.Details[0]
				}
				return page
			},
			print: func(page ops.SettingsPage) error {
				var rows [][]string
				for _, v := range page.Details {
					standard := "no"
					if v.Default {
						standard = "yes"
					}
					rows = append(rows, []string{v.Setting, settingText(v.Value), standard, orText(v.By, "-"), orZero(v.At), orText(changeText(v.Change), "-")})
				}
				err := cli.Table(m.Out, "SETTING VALUE DEFAULT BY AT CHANGE", rows)
				if err == nil && page.Ignored > 0 && !one {
					_, err = fmt.Fprintf(m.Out, "ignored changes: %d; see scrip config changes\n", page.Ignored)
				}
				return err
			},
		}),
		command(m, action[ops.SettingsChanged]{
			use: "set KEY VALUE", name: "config.set", args: []string{"settings", "value"}, by: true, short: "Change a setting at all servers",
			long: `Change a setting at all servers. The command returns when the change is stored with its author and time; it takes effect
at all servers within a second. Concurrent changes are all stored, and the last one is in force.

` + help + `
VALUE ` + settings.ToDefault + ` restores the default. An invalid value, or a pause of an unknown campaign, is refused (exit code 3), and
nothing is stored.`,
			example: `  scrip config set reminder.rate 2000
  scrip config set reminder.pause.summer true --by 'Ann, on call'
  scrip config set reminder.grace default`,
			prepare: func(_ *cobra.Command, given fields, args []string) error {
				delete(given, "value")
				given["settings"] = settings.PatchOf(args[0], args[1])
				return nil
			},
			print: func(of ops.SettingsChanged) error {
				c := of.Changes[0]
				_, err := fmt.Fprintf(m.Out, "%s: %s → %s (change %d, by %s)\n", c.Setting, settingText(c.Was), settingText(c.Value), c.N, c.By)
				return err
			},
		}),
		command(m, action[ops.Page[settings.Change]]{
			use: "changes [KEY]", name: "config.changes", args: []string{"setting"}, optional: true, short: "Show changes of the settings, newest first",
			long: `Show the changes of the settings, or of one, newest first: author, time, new value and value before. An invalid change,
written by hand or by a newer version, is shown with the reason why servers ignore it; the value before it stays in force.`,
			example: `  scrip config changes
  scrip config changes reminder.rate --limit 20`,
			print: func(page ops.Page[settings.Change]) error {
				var rows [][]string
				for i := range page.Items {
					c := &page.Items[i]
					rows = append(rows, []string{orText(changeText(c.N), "-"), orZero(c.At), orText(plain(c.Setting, 90), "-"), settingText(c.Was),
						settingText(c.Value), orText(plain(c.By, 128), "-"), plain(c.Ignored, 200)})
				}
				return m.table(page.Next, "CHANGE AT SETTING WAS VALUE BY IGNORED", rows)
			},
		}))
	g.Long = `Show and change settings while servers run. A change takes effect at all servers within a second, without a restart, and
stays in force until the next one. Every change is stored with its author and time. While NATS is unreachable, servers use
the last settings that they read.

` + help + `
The value ` + settings.ToDefault + ` restores a default. The default of reminder.grace is the value of serve --reminder-grace.

A pause delays what becomes due and is not requested yet. When it ends, reminders fire if what they announce is still in the
future. They are dropped and counted when that has passed and they are later than reminder.grace, or when they are later
than their campaign's --late-after. Paused expiries are announced when the pause ends; a coupon cannot be redeemed after its
expiry instant in any case.`
	return g
}

// settingsHelp lists the settings, for help texts.
func settingsHelp() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, d := range settings.Describe() {
		fmt.Fprintf(w, "  %s\t%s, default %s\n", d.Name, d.Bounds, d.Default)
	}
	_ = w.Flush() // into memory
	text.WriteString("\n")
	for _, d := range settings.Describe() {
		fmt.Fprintf(&text, "%s: %s.\n", d.Name, d.About)
	}
	return text.String()
}

// settingText is a value of a setting for people.
func settingText(value json.RawMessage) string {
	text := string(value)
	if text == "null" {
		return settings.ToDefault
	}
	_ = json.Unmarshal(value, &text) // a number or a flag stays as it is
	return plain(text, 60)
}

func changeText(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}
