package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

func (m *Main) configCommand() *cobra.Command {
	g := cli.Group("config", "Show and change settings while servers run", m.configGet(), m.configSet(), m.configHistory())
	g.Long = `Show and change settings while servers run. A change takes effect at all servers within a second, without a restart, and
stays in force until the next one. Every change is stored with its author and time. While NATS is unreachable, servers use
the last settings that they read.

` + settingsHelp() + `
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

// settings opens the history of the settings of a log that exists and is complete.
func (m *Main) settings(ctx context.Context, s *session, defaults *settings.Settings) (*settings.Store, error) {
	js, _, err := s.log(ctx)
	if err != nil {
		return nil, err
	}
	return settings.Open(ctx, js, settings.Options{Defaults: defaults, Clock: m.Clock, Audit: audit.Open(js, m.Clock)})
}

func (m *Main) configGet() *cobra.Command {
	cmd := &cobra.Command{
		Use: "get [KEY]", Short: "Show the settings in force",
		Long: `Show the settings in force, all or one: the value, whether it is the default, and who changed it last and when. A pause of
a campaign is listed if it was set and not restored to its default.`,
		Example: `  scrip config get
  scrip config get reminder.grace -o json`,
		Args: optionalArg(settings.CheckName),
	}
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		page, known, err := m.readSettings(ctx, s, given)
		switch {
		case err != nil:
			return err
		case m.global.output == outputJSON && len(given) == 1:
			return cli.JSON(m.Out, page.Settings[0])
		case m.global.output == outputJSON:
			return cli.JSON(m.Out, page)
		}
		var rows [][]string
		guessed := false
		for _, v := range page.Settings {
			standard := "no"
			if v.Default {
				standard = "yes"
				guessed = guessed || v.Setting == graceSetting && !known
			}
			rows = append(rows, []string{v.Setting, v.Value, standard, orText(v.By, "-"), orZero(v.At), orText(changeText(v.Change), "-")})
		}
		if err := cli.Table(m.Out, "SETTING VALUE DEFAULT BY AT CHANGE", rows); err != nil {
			return err
		}
		if guessed {
			fmt.Fprintf(m.Out, "the default of %s differs if servers run with --reminder-grace, which this command cannot read with --nats\n", graceSetting)
		}
		if page.Ignored > 0 && len(given) == 0 {
			fmt.Fprintf(m.Out, "ignored changes: %d; see scrip config history\n", page.Ignored)
		}
		return nil
	})
}

// readSettings reads the settings in force, all or the given one: from the log, or with a key from a server. known is false
// where the servers' own defaults are not known.
func (m *Main) readSettings(ctx context.Context, s *session, given []string) (page ops.SettingsPage, known bool, err error) {
	if s.guest(ctx) != "" {
		request := map[string]string{}
		if len(given) == 1 {
			request["setting"] = given[0]
		}
		err = m.ask(ctx, s, "config.get", request, &page)
		return page, true, err
	}
	defaults, known := serverDefaults(ctx, s)
	store, err := m.settings(ctx, s, defaults)
	if err != nil {
		return page, known, err
	}
	state, err := store.Read(ctx)
	if err != nil {
		return page, known, err
	}
	page = ops.SettingsPage{Settings: state.Values(), Revision: state.Revision, Ignored: state.Ignored}
	if len(given) == 1 {
		v, err := state.Value(given[0])
		if err != nil {
			return page, known, &cli.UsageError{Err: err}
		}
		page.Settings = []settings.Value{v}
	}
	return page, known, nil
}

const graceSetting = "reminder.grace"

// serverDefaults are the defaults, with the grace that the server was started with if it is known.
func serverDefaults(ctx context.Context, s *session) (defaults *settings.Settings, known bool) {
	defaults = settings.Default()
	if s.server.HTTPURL == "" {
		return defaults, false
	}
	ready, err := getReady(ctx, s.server)
	var c status.ConfigReadiness
	if err != nil || !ready.Checks["config"].Detailed(&c) {
		return defaults, false
	}
	with := *defaults
	with.ReminderGrace, err = time.ParseDuration(c.GraceDefault)
	if err != nil || with.Validate() != nil {
		return defaults, false
	}
	return &with, true
}

func (m *Main) configHistory() *cobra.Command {
	var limit uint32
	cmd := &cobra.Command{
		Use: "history [KEY]", Short: "Show every change of the settings, oldest first",
		Long: `Show every change of the settings, or of one, oldest first: author, time, new value and value before. An invalid change,
written by hand or by a newer version, is shown with the reason why servers ignore it; the value before it stays in force.`,
		Example: `  scrip config history
  scrip config history reminder.rate --limit 20`,
		Args: optionalArg(nil),
	}
	cmd.Flags().Var(cli.Number(&limit, 0, 1, 1_000_000), "limit", "show this many of the newest changes (default all)")
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		page, err := m.readChanges(ctx, s, given, int(limit))
		if err != nil {
			return err
		}
		if len(page.Changes) == 0 && len(given) == 1 {
			if err := settings.CheckName(given[0]); err != nil {
				return &cli.UsageError{Err: err}
			}
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, page)
		}
		var rows [][]string
		for i := range page.Changes {
			c := &page.Changes[i]
			rows = append(rows, []string{orText(changeText(c.N), "-"), orZero(c.At), orText(plain(c.Setting, 90), "-"), orText(plain(c.Was, 30), "-"),
				plain(c.Value, 60), orText(plain(c.By, 128), "-"), plain(c.Ignored, 200)})
		}
		if page.LeftOut > 0 {
			fmt.Fprintf(m.Out, "older changes left out: %d; see all without --limit\n", page.LeftOut)
		}
		return cli.Table(m.Out, "CHANGE AT SETTING WAS VALUE BY IGNORED", rows)
	})
}

// readChanges reads the newest changes, of one setting if it is given, limit 0 = all: from the log, or with a key from a
// server, which sends 1,000 at most.
func (m *Main) readChanges(ctx context.Context, s *session, given []string, limit int) (page ops.ChangesPage, err error) {
	if s.guest(ctx) != "" {
		request := map[string]any{}
		if limit > 0 {
			request["limit"] = min(limit, 1000)
		}
		if len(given) == 1 {
			request["setting"] = given[0]
		}
		err = m.ask(ctx, s, "config.history", request, &page)
		return page, err
	}
	store, err := m.settings(ctx, s, nil)
	if err != nil {
		return page, err
	}
	all, err := store.History(ctx)
	if err != nil {
		return page, err
	}
	setting := ""
	if len(given) == 1 {
		setting = given[0]
	}
	for _, c := range all {
		if setting == "" || c.Setting == setting {
			page.Changes = append(page.Changes, c)
		}
	}
	if limit > 0 {
		page.LeftOut = max(0, len(page.Changes)-limit)
	}
	page.Changes = append([]settings.Change{}, page.Changes[page.LeftOut:]...)
	return page, nil
}

// optionalArg takes at most one KEY.
func optionalArg(check func(string) error) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) > 1 {
			return cli.Usagef("%s takes no further %q", cli.Path(cmd), given[1])
		}
		if len(given) == 1 && check != nil {
			if err := check(given[0]); err != nil {
				return &cli.UsageError{Err: err}
			}
		}
		return nil
	}
}

func changeText(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

func orZero(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// plain makes an untrusted text printable: without terminal control sequences, cut for a column.
func plain(s string, most int) string {
	return wire.Shorten(cli.Line(s), most)
}

// notStored turns an invalid setting into a usage error.
func notStored(err error) error {
	var invalid *settings.InvalidError
	if errors.As(err, &invalid) {
		return &cli.UsageError{Err: err}
	}
	return err
}

func (m *Main) configSet() *cobra.Command {
	cmd := &cobra.Command{
		Use: "set KEY VALUE", Short: "Change a setting at all servers",
		Long: `Change a setting at all servers. The command returns when the change is stored with its author and time; it takes effect
at all servers within a second. Concurrent changes are all stored, and the last one is in force.

` + settingsHelp() + `
VALUE ` + settings.ToDefault + ` restores the default. A pause of an unknown campaign is refused (exit code 3).
An invalid value is refused (exit code 2), and nothing is stored.`,
		Example: `  scrip config set reminder.rate 2000
  scrip config set reminder.pause.summer true --by 'Ann, on call'
  scrip config set reminder.grace default`,
	}
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if err := cli.Args("KEY", "VALUE")(cmd, given); err != nil {
			if len(given) == 1 {
				if unknown := settings.CheckName(given[0]); unknown != nil {
					return &cli.UsageError{Err: unknown}
				}
			}
			return err
		}
		if _, err := settings.Check(given[0], given[1]); err != nil {
			return &cli.UsageError{Err: err}
		}
		return nil
	}
	cmd.Flags().Var(&cli.Value{Kind: "NAME", Parse: func(s string) error {
		m.by = s
		return wire.CheckBy("by", s)
	}}, "by", "author of the change, for the history (default user@host); with a key the author is its name")
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		change, err := m.set(ctx, s, given[0], given[1])
		if err != nil {
			return err
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, change)
		}
		_, err = fmt.Fprintf(m.Out, "%s: %s → %s (change %d, by %s)\n", change.Setting, plain(change.Was, 60), change.Value, change.N, change.By)
		return err
	})
}

// set changes a setting through the service, which takes the author from the user that logged in. Where no server answers
// that request, because they are older or have no role api, the command writes the change itself: that needs the credentials
// of the data directory, and the author is what the command line names.
func (m *Main) set(ctx context.Context, s *session, setting, value string) (change settings.Change, err error) {
	err = s.Manage(ctx, "config.set", map[string]string{"setting": setting, "value": value}, &change)
	var refused *client.RefusedError
	switch {
	case err == nil:
		return change, nil
	case errors.As(err, &refused) && refused.Outcome.Refusal == wire.CampaignNotFound:
		return change, m.refuse(wire.CampaignNotFound, "refused: %s; scrip campaign list shows all", refused.Outcome.Message)
	case errors.As(err, &refused):
		return change, &cli.UsageError{Err: errors.New(refused.Outcome.Message)}
	case !errors.Is(err, nats.ErrNoResponders):
		return change, err
	}
	store, err := m.settings(ctx, s, nil)
	if err != nil {
		return change, err
	}
	if campaign, ok := settings.Pauses(setting); ok {
		if err := m.mayPause(ctx, s, store, setting, value, campaign); err != nil {
			return change, err
		}
	}
	change, err = store.Set(ctx, setting, value, author(m.by))
	return change, notStored(err)
}

// mayPause refuses to pause campaigns that do not exist, so that a mistyped name is an error. A pause can always be
// ended, also while no lane answers.
func (m *Main) mayPause(ctx context.Context, s *session, store *settings.Store, setting, value, campaign string) error {
	if value != "true" {
		state, err := store.Read(ctx)
		if err != nil {
			return err
		}
		if v, err := state.Value(setting); err == nil && v.Value == "true" {
			return nil
		}
	}
	_, err := s.Campaign(ctx, campaign)
	var refused *client.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && refused.Outcome.Refusal == wire.CampaignNotFound:
		return m.refuse(wire.CampaignNotFound, "refused: %s: there is no campaign %s, so nothing was set; scrip campaign list shows all", setting, campaign)
	case errors.As(err, &refused):
		return err
	}
	return fmt.Errorf("the campaign %s could not be looked up, so nothing was set: %w; see scrip status, and try again", campaign, err)
}

// userAtHost is the user that runs the program and the host's name, each "unknown" where the system has none.
func userAtHost() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil && h != "" {
		host = h
	}
	by := plain(name+"@"+host, 100)
	if !wire.Printable(by) {
		return "unknown"
	}
	return by
}
