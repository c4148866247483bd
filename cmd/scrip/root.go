package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/terminal"
)

// globalFlags are those that every command takes; each also as a variable SCRIP_…, or SCRIP_…_FILE for the name of a file that
// holds the value.
type globalFlags struct {
	data    string
	nats    string
	output  string
	timeout time.Duration
	sealKey string // name of the file
}

const (
	outputText = "text"
	outputJSON = "json"
)

// envPrefix and the upper-case name of a flag make the name of its variable.
const envPrefix = "SCRIP_"

// Run is the whole program: it runs one command line and returns the exit code.
func (m *Main) Run(ctx context.Context, args []string) int {
	root := m.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	code := exitCode(err)
	switch {
	case err == nil, errors.Is(err, errRefused), errors.Is(err, errDiffered):
	case code == exitUsage:
		fmt.Fprintf(m.Err, "scrip: %s\nSee '%s --help'.\n", terminal.Text(err.Error()), cmd.CommandPath())
	default:
		fmt.Fprintf(m.Err, "scrip: %s\n", terminal.Text(err.Error()))
	}
	return code
}

func (m *Main) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "scrip",
		Short: "scrip hands out coupons, redeems them, expires them and reminds people of them",
		Long: `scrip hands out coupons, redeems them, expires them and reminds people of them.

  scrip serve                                        a server, with all it needs, on ./data
  scrip campaign create summer --codes 1000          a campaign of 1,000 coupons
  scrip claim summer --customer alice                a coupon becomes Alice's
  scrip redeem 7KQ2-9F3M-XW4T --order 4711           she uses it

Clients find the server by --nats, else by the file scrip.json that a server keeps in its --data directory.
Times are RFC 3339 (2026-11-27T00:00:00Z) or from now (+10m). Durations are like 90s, 1m, 72h.
Results go to standard output, everything else to standard error. Nothing ever waits for a key to be pressed.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused, 4 differences found.`,
		Args:          noArgs,
		SilenceErrors: true, SilenceUsage: true,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return m.fromEnvironment(cmd) },
	}
	root.SetIn(m.In)
	root.SetOut(m.Out)
	root.SetErr(m.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.CompletionOptions.HiddenDefaultCmd = true

	f := root.PersistentFlags()
	f.StringVar(&m.global.data, "data", "./data", "data `DIR`ectory of the server: where it keeps everything, and where clients find it")
	f.StringVar(&m.global.nats, "nats", "", "`URL` of the NATS server; clients then need no --data")
	f.VarP(choice(&m.global.output, outputText, outputText, outputJSON), "output", "o", "text or json")
	f.Var(duration(&m.global.timeout, 10*time.Second, time.Millisecond, time.Hour), "timeout", "how long to wait for an answer")

	f.StringVar(&m.global.sealKey, datadir.SealKeyFlag, "", datadir.SealKeyUsage)

	root.AddCommand(m.serveCommand(), m.campaignCommand(), m.codesCommand(), m.claimCommand(), m.redeemCommand(), m.rollbackCommand(),
		m.voidCommand(), m.extendCommand(), m.remindCommand(), m.unremindCommand(), m.couponCommand(), m.customerCommand(),
		m.statusCommand(), m.envCommand(), m.keyCommand(), m.demoCommand(), m.replayCommand(), m.versionCommand(),
		m.backupCommand(), m.restoreCommand())
	root.AddCommand(m.rebuildCommand(), m.verifyCommand(), m.deadletterCommand(), m.configCommand())
	root.InitDefaultHelpCmd()
	return root
}

// fromEnvironment fills flags that were not given from their variables. A flag of a single command is looked up only
// where it was marked (see withVariable): SCRIP_CUSTOMER would make claims of commands that forgot a flag.
func (m *Main) fromEnvironment(cmd *cobra.Command) error {
	var problem error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		global := cmd.Root().PersistentFlags().Lookup(f.Name) != nil
		if problem != nil || f.Changed || !global && f.Annotations[variableMark] == nil {
			return
		}
		name := variable(f.Name)
		value, err := datadir.Variable(m.Env, name)
		if err != nil {
			problem = &usageError{err}
			return
		}
		if value != "" {
			if err := cmd.Flags().Set(f.Name, value); err != nil {
				// pflag's text names the flag; the person set a variable.
				var bad *pflag.InvalidValueError
				if errors.As(err, &bad) {
					err = bad.Unwrap()
				}
				problem = usagef("variable %s is %q: %w", name, value, err)
			}
		}
	})
	return problem
}

const variableMark = "scrip_variable"

// withVariable makes all flags of fs settable by variables.
func withVariable(fs *pflag.FlagSet) {
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[variableMark] = []string{variable(f.Name)}
	})
}

func variable(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// noArgs and args say in words what is missing or too much.
func noArgs(cmd *cobra.Command, given []string) error {
	if len(given) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		hint := ""
		if near := cmd.SuggestionsFor(given[0]); len(near) > 0 {
			hint = fmt.Sprintf("; did you mean %s?", near[0])
		}
		return usagef("%s has no command %q%s", path(cmd), given[0], hint)
	}
	return usagef("%s takes no %q", path(cmd), given[0])
}

func args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		switch {
		case len(given) < len(names):
			return usagef("%s needs %s", path(cmd), strings.Join(names[len(given):], " and "))
		case len(given) > len(names):
			return usagef("%s takes no further %q", path(cmd), given[len(names)])
		}
		return nil
	}
}

// path is a command's name as typed behind "scrip"; "scrip: " stands before it already.
func path(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// group is a command that only holds others.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: noArgs}
	g.RunE = func(cmd *cobra.Command, _ []string) error {
		var names []string
		for _, s := range subs {
			names = append(names, s.Name())
		}
		return usagef("%s needs a command: %s", path(cmd), strings.Join(names, ", "))
	}
	g.AddCommand(subs...)
	return g
}

// require refuses a command line without one of the named flags.
func require(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if !cmd.Flags().Changed(name) {
			f := cmd.Flags().Lookup(name)
			value, _ := pflag.UnquoteUsage(f)
			return usagef("%s needs --%s %s", path(cmd), name, value)
		}
	}
	return nil
}
