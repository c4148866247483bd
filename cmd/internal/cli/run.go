// Package cli is what the command lines of scrip and pushsender have in common.
//
//	SIGINT ──> Context ──┐
//	arguments ───────────┴──> Execute ──> command ──> error ──> text on standard error, exit code
//	                                        └──> Serve: the log and the signals of a command that runs until it is stopped
//	SCRIP_… variables ──> FromEnvironment ──> flags that were not given
//
// Owner: the main function. The package has no state; a crash loses nothing.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
)

// Exit codes.
const (
	ExitDone     = 0
	ExitFailed   = 1 // an error, or an unknown outcome
	ExitUsage    = 2 // the command line is invalid; nothing was done
	ExitRefused  = 3 // refused; nothing was done
	ExitDiffered = 4 // a check found differences
)

// UsageError is an invalid command line.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef formats a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{Err: fmt.Errorf(format, args...)} }

// ErrRefused and ErrDiffered end a command whose result has been printed already.
var (
	ErrRefused  = errors.New("refused")
	ErrDiffered = errors.New("differences found")
)

// ExitCode is the exit code of a command's error, ExitDone for nil.
func ExitCode(err error) int {
	var usage *UsageError
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &usage):
		return ExitUsage
	case errors.Is(err, ErrRefused):
		return ExitRefused
	case errors.Is(err, ErrDiffered):
		return ExitDiffered
	}
	return ExitFailed
}

// Prepare sets the streams of a root command (in may be nil) and makes errors of its flags usage errors.
func Prepare(root *cobra.Command, in io.Reader, out, stderr io.Writer) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &UsageError{Err: err} })
	root.CompletionOptions.HiddenDefaultCmd = true
}

// Execute runs one command line, prints its error and returns the exit code. It closes the log of a command that serves.
func Execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	code, stderr := ExitCode(err), root.ErrOrStderr()
	if s, serves := stderr.(*serving); serves {
		defer s.end()
	}
	switch code {
	case ExitDone, ExitRefused, ExitDiffered:
	case ExitUsage:
		fmt.Fprintf(stderr, "%s: %s\nSee '%s --help'.\n", root.Name(), Text(err.Error()), cmd.CommandPath())
	default:
		fmt.Fprintf(stderr, "%s: %s\n", root.Name(), Text(err.Error()))
	}
	return code
}

// variableMark is the annotation of flags that can be set by a variable.
const variableMark = "scrip_variable"

// variable is the name of a flag's variable: --nats-listen and SCRIP_NATS_LISTEN.
func variable(flag string) string {
	return "SCRIP_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// WithVariable marks flags of fs, all if none is named, as settable by variables.
func WithVariable(fs *pflag.FlagSet, names ...string) {
	mark := func(f *pflag.Flag) {
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[variableMark] = []string{variable(f.Name)}
	}
	if len(names) == 0 {
		fs.VisitAll(mark)
	}
	for _, name := range names {
		mark(fs.Lookup(name))
	}
}

// FromEnvironment sets the marked flags that were not given from their variables: see WithVariable and datadir.Variable.
// Other flags have no variable: SCRIP_CUSTOMER would turn a command without its flag into a claim.
func FromEnvironment(cmd *cobra.Command, env func(string) (string, bool)) error {
	var problem error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if problem != nil || f.Changed || f.Annotations[variableMark] == nil {
			return
		}
		name := variable(f.Name)
		value, err := datadir.Variable(env, name)
		if err != nil {
			problem = &UsageError{Err: err}
			return
		}
		if value != "" {
			if err := cmd.Flags().Set(f.Name, value); err != nil {
				// pflag's text names the flag; the user set a variable.
				var bad *pflag.InvalidValueError
				if errors.As(err, &bad) {
					err = bad.Unwrap()
				}
				problem = Usagef("variable %s is %q: %w", name, value, err)
			}
		}
	})
	return problem
}

// NoArgs refuses arguments. For a command with subcommands its error suggests the nearest name.
func NoArgs(cmd *cobra.Command, given []string) error {
	if len(given) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		hint := ""
		if near := cmd.SuggestionsFor(given[0]); len(near) > 0 {
			hint = fmt.Sprintf("; did you mean %s?", near[0])
		}
		return Usagef("%s has no command %q%s", Path(cmd), given[0], hint)
	}
	return Usagef("%s takes no %q", Path(cmd), given[0])
}

// Args requires exactly the named arguments.
func Args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		switch {
		case len(given) < len(names):
			return Usagef("%s needs %s", Path(cmd), strings.Join(names[len(given):], " and "))
		case len(given) > len(names):
			return Usagef("%s takes no further %q", Path(cmd), given[len(names)])
		}
		return nil
	}
}

// Path is a command's name without that of the root, which is the prefix of every error already.
func Path(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// Group is a command that only has subcommands.
func Group(use, short string, subs ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: NoArgs}
	g.RunE = func(cmd *cobra.Command, _ []string) error {
		var names []string
		for _, s := range subs {
			names = append(names, s.Name())
		}
		return Usagef("%s needs a command: %s", Path(cmd), strings.Join(names, ", "))
	}
	g.AddCommand(subs...)
	return g
}

// Require refuses a command line without one of the named flags.
func Require(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if !cmd.Flags().Changed(name) {
			f := cmd.Flags().Lookup(name)
			value, _ := pflag.UnquoteUsage(f)
			return Usagef("%s needs --%s %s", Path(cmd), name, value)
		}
	}
	return nil
}

// Build is what a release's linker sets in a program: its version and its commit. Without them the commit in the build
// information is used.
type Build struct{ Version, Commit string }

// Revision is the commit that the program was built from, and whether files were changed.
func (b Build) Revision() (revision string, changed bool) {
	if b.Commit != "" {
		return b.Commit, false
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", false
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	return revision, changed
}

// String is the version for people.
func (b Build) String() string {
	revision, changed := b.Revision()
	switch {
	case b.Version != "":
		return b.Version
	case len(revision) < 12:
		if info, ok := debug.ReadBuildInfo(); ok {
			return info.Main.Version
		}
		return "unknown"
	case changed:
		return revision[:12] + "+changes"
	}
	return revision[:12]
}
