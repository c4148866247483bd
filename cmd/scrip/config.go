package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/terminal"
	"github.com/seed-4a2410e3/scrip/streams/config"
)

func (m *Main) configCommand() *cobra.Command {
	g := group("config", "Look at what can be set while servers run, and set it", m.configGet(), m.configSet(), m.configHistory())
	g.Long = `Look at what can be set while servers run, and set it. What is set is in force at all servers within a second, without a
restart, and stays so until it is set again. Every change is kept, with who made it and when. While NATS is away, what
was in force stays so.

` + settingsHelp() + `
The value ` + config.ToDefault + ` takes a setting back. The default of reminder.grace is what serve --reminder-grace says.

A pause holds back what falls due and was not asked for yet. When it ends, reminders fire while what they announce is still
to come. They are dropped and counted when that has passed and they are later than reminder.grace, or when they are later
than their campaign's --late-after. Paused expiries are announced when the pause ends; redeeming is refused from the
instant on in any case.`
	return g
}

// settingsHelp lists the settings, for help texts.
func settingsHelp() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, d := range config.Describe() {
		fmt.Fprintf(w, "  %s\t%s, default %s\n", d.Name, d.Bounds, d.Default)
	}
	_ = w.Flush() // into memory
	text.WriteString("\n")
	for _, d := range config.Describe() {
		fmt.Fprintf(&text, "%s: %s.\n", d.Name, d.About)
	}
	return text.String()
}

// settings finds the history of the settings, of a log that is there and whole.
func (m *Main) settings(ctx context.Context, s *session, defaults *config.Settings) (*config.Store, error) {
	js, _, err := s.log(ctx)
	if err != nil {
		return nil, err
	}
	return config.Open(ctx, js, config.Options{Defaults: defaults, Now: m.Now})
}

func (m *Main) configGet() *cobra.Command {
	cmd := &cobra.Command{
		Use: "get [KEY]", Short: "Show the settings in force",
		Long: `Show the settings in force, all or one: the value, whether it is the default, and who changed it last and when. Of pauses,
those of campaigns for which one was ever set and not taken back.`,
		Example: `  scrip config get
  scrip config get reminder.grace -o json`,
		Args: optionalArg(config.CheckName),
	}
	return m.asks(cmd, func(ctx context.Context, s *session, given []string) error {
		defaults, known := serverDefaults(ctx, s)
		store, err := m.settings(ctx, s, defaults)
		if err != nil {
			return err
		}
		state, err := store.Read(ctx)
		if err != nil {
			return err
		}
		values := state.Values()
		if len(given) == 1 {
			v, err := state.Value(given[0])
			if err != nil {
				return &usageError{err}
			}
			if m.global.output == outputJSON {
				return m.printJSON(v)
			}
			values = []config.Value{v}
		}
		if m.global.output == outputJSON {
			return m.printJSON(map[string]any{"settings": values, "revision": state.Revision, "ignored": state.Ignored})
		}
		var rows [][]string
		guessed := false
		for _, v := range values {
			standard := "no"
			if v.Default {
				standard = "yes"
				guessed = guessed || v.Setting == graceSetting && !known
			}
			rows = append(rows, []string{v.Setting, v.Value, standard, orText(v.By, "-"), orZero(v.At), orText(changeText(v.Change), "-")})
		}
		if err := m.printTable("SETTING VALUE DEFAULT BY AT CHANGE", rows); err != nil {
			return err
		}
		if guessed {
			fmt.Fprintf(m.Out, "the default of %s is another where servers have a --reminder-grace of their own, which is not known with --nats\n", graceSetting)
		}
		if state.Ignored > 0 && len(given) == 0 {
			fmt.Fprintf(m.Out, "changes that are ignored: %d; see scrip config history\n", state.Ignored)
		}
		return nil
	})
}

const graceSetting = "reminder.grace"

// serverDefaults are the defaults, with the grace that the server was started with where that is known.
func serverDefaults(ctx context.Context, s *session) (defaults *config.Settings, known bool) {
	defaults = config.Default()
	if s.server.HTTPURL == "" {
		return defaults, false
	}
	ready, err := askReady(ctx, s.server.HTTPURL)
	var c server.ConfigReadiness
	if err != nil || !detailed(ready.Checks["config"], &c) {
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
		Long: `Show every change of the settings, or of one, oldest first: what was set by whom and when, and what it was before. A change
that makes no sense, written by hand or by a newer version, is shown with the reason why it is ignored; what held before
it stays in force.`,
		Example: `  scrip config history
  scrip config history reminder.rate --limit 20`,
		Args: optionalArg(nil),
	}
	cmd.Flags().Var(number(&limit, 0, 1, 1_000_000), "limit", "the newest ones, so many at most (default all)")
	return m.asks(cmd, func(ctx context.Context, s *session, given []string) error {
		store, err := m.settings(ctx, s, nil)
		if err != nil {
			return err
		}
		all, err := store.History(ctx)
		if err != nil {
			return err
		}
		shown := []config.Change{}
		for _, c := range all {
			if len(given) == 0 || c.Setting == given[0] {
				shown = append(shown, c)
			}
		}
		if len(shown) == 0 && len(given) == 1 {
			if err := config.CheckName(given[0]); err != nil {
				return &usageError{err}
			}
		}
		older := 0
		if limit > 0 && len(shown) > int(limit) {
			older = len(shown) - int(limit)
			shown = shown[older:]
		}
		if m.global.output == outputJSON {
			return m.printJSON(map[string]any{"changes": shown, "left_out": older})
		}
		var rows [][]string
		for i := range shown {
			c := &shown[i]
			rows = append(rows, []string{orText(changeText(c.N), "-"), orZero(c.At), orText(plain(c.Setting, 90), "-"), orText(plain(c.Was, 30), "-"),
				plain(c.Value, 60), orText(plain(c.By, 128), "-"), plain(c.Ignored, 200)})
		}
		if older > 0 {
			fmt.Fprintf(m.Out, "older changes left out: %d; see all without --limit\n", older)
		}
		return m.printTable("CHANGE AT SETTING WAS VALUE BY IGNORED", rows)
	})
}

// optionalArg takes at most one KEY.
func optionalArg(check func(string) error) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) > 1 {
			return usagef("%s takes no further %q", path(cmd), given[1])
		}
		if len(given) == 1 && check != nil {
			if err := check(given[0]); err != nil {
				return &usageError{err}
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

// plain shows a text that anybody may have written: without what a terminal would obey, cut for a column.
func plain(s string, most int) string {
	return oneLine(terminal.Line(s), most)
}

// notStored explains why a setting was not changed.
func notStored(err error) error {
	var invalid *config.InvalidError
	if errors.As(err, &invalid) {
		return &usageError{err}
	}
	return err
}
