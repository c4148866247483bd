// Command scrip is the server and its command line in one.
//
//	scrip serve ──> cmd/internal/server          all parts of a server
//	scrip demo  ──> cmd/internal/demo            a flash sale with checks
//	scrip …     ──> streams/client ──> server    one command, one outcome, one exit code
//
// Owner: none. A command that is killed before it has its outcome may or may not have taken effect; a retry with the
// same --id takes effect once.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func main() {
	m := &Main{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Now: time.Now,
		TerminalIn: cli.IsTerminal(os.Stdin), TerminalErr: cli.IsTerminal(os.Stderr),
	}
	os.Exit(m.Run(cli.Context(), os.Args[1:]))
}

// Main is the program with its inputs and outputs, so that tests can run it in process.
type Main struct {
	In       io.Reader
	Out, Err io.Writer
	// Env looks up an environment variable.
	Env func(string) (string, bool)
	Now func() time.Time
	// TerminalIn and TerminalErr are true if standard input and error are terminals. Progress is shown on terminals only.
	TerminalIn, TerminalErr bool

	global globalFlags
}

// version is set by the linker in releases; else the commit in the build information is used.
var version string

func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			text = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+changes"
		}
	}
	if text == "" {
		return info.Main.Version
	}
	return text + changed
}

func (m *Main) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				Format  int    `json:"log_format"`
			}{versionText(), runtime.Version(), topology.Format}
			if m.global.output == outputJSON {
				return json.NewEncoder(m.Out).Encode(v)
			}
			_, err := fmt.Fprintf(m.Out, "scrip %s, %s, log format %d\n", v.Version, v.Go, v.Format)
			return err
		},
	}
	unusedIDFlag(cmd)
	return cmd
}
