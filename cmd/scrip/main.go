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
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

func main() {
	m := &Main{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Clock: wall.Machine,
		TerminalIn: cli.IsTerminal(os.Stdin), TerminalErr: cli.IsTerminal(os.Stderr),
	}
	os.Exit(m.Run(cli.Context(), os.Args[1:]))
}

// Main is the program with its inputs and outputs, so that tests can run it in process.
type Main struct {
	In       io.Reader
	Out, Err io.Writer
	// Env looks up an environment variable.
	Env   func(string) (string, bool)
	Clock wall.Clock
	// TerminalIn and TerminalErr are true if standard input and error are terminals. Progress is shown on terminals only.
	TerminalIn, TerminalErr bool

	global    globalFlags
	natsFlags cli.NATSFlags
	by        string // the user that requests name; "" = user@host
	instants  string // flags of the times of a list, for its next page
}

// globalFlags are the flags of every command; each can also be set by a variable SCRIP_…, or by SCRIP_…_FILE with the name
// of a file that holds the value.
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

// Run is the whole program: it runs one command line and returns the exit code.
func (m *Main) Run(ctx context.Context, args []string) int {
	return cli.Execute(ctx, m.root(), args)
}

func (m *Main) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "scrip",
		Short: "scrip issues, redeems and expires coupons, and sends reminders",
		Long: `scrip issues, redeems and expires coupons, and sends reminders.

  scrip serve                                        run a server, with NATS and PostgreSQL, on ./data
  scrip campaign create summer --codes 1000          create a campaign of 1,000 coupons
  scrip claim summer --customer alice                claim a coupon for Alice
  scrip redeem 7KQ2-9F3M-XW4T --order 4711           redeem it

Clients find the server by --nats, else by the file scrip.json that a server writes to its --data directory.
Times are RFC 3339 (2026-11-27T00:00:00Z) or from now (+10m). Durations are like 90s, 1m, 72h.
Results go to standard output, everything else to standard error. All commands are non-interactive.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused, 4 differences found.`,
		Args:              cli.NoArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return cli.FromEnvironment(cmd, m.Env) },
	}
	cli.Prepare(root, m.In, m.Out, m.Err)

	f := root.PersistentFlags()
	f.StringVar(&m.global.data, "data", "./data", "data `DIR`ectory of the server, in which clients find its address")
	f.StringVar(&m.global.nats, "nats", "", "`URL` of the NATS server; clients then need no --data")
	f.VarP(cli.Choice(&m.global.output, outputText, outputText, outputJSON), "output", "o", "text or json")
	f.Var(cli.Duration(&m.global.timeout, 10*time.Second, time.Millisecond, time.Hour), "timeout", "how long to wait for a reply")

	f.StringVar(&m.global.sealKey, datadir.SealKeyFlag, "", datadir.SealKeyUsage)
	cli.WithVariable(f)
	m.natsFlags.Add(f)

	root.AddCommand(m.claims()...)
	root.AddCommand(cli.Group("coupon", "Show, list or validate coupons", m.couponShow(), m.couponList(), m.couponValidate()), m.couponsCommand(), m.dueCommand(),
		m.campaignCommand(), m.codesCommand(), m.customerCommand(), m.reminderCommand(), m.optOutCommand(),
		m.configCommand(), m.accessCommand(), m.auditCommand(), m.webhookCommand(), m.deadletterCommand(), m.statusCommand(), m.overviewCommand(), m.logCommand(), m.findCommand(), m.senderCommand(),
		m.rebuildCommand(), m.verifyCommand(), m.backupCommand(), m.jobCommand(),
		m.serveCommand(), m.restoreCommand(), m.replayCommand(), m.demoCommand(), m.doctorCommand(), m.envCommand(), m.openCommand(), m.keyCommand(), m.natsCommand(), m.postgresCommand(), m.versionCommand())
	root.InitDefaultHelpCmd()
	return root
}

// version and commit are set by the linker in releases; else the commit in the build information is used.
var version, commit string

// contract is the version of domain/CONTRACT.md.
const contract = "1.0"

// formats are what this program writes, by what it is called on the changelog's page. Each has its own number.
var formats = []struct{ name, field, number string }{
	{"contract", "contract", contract},
	{"log", "log_format", fmt.Sprint(topology.Format)},
	{"data directory", "data_format", fmt.Sprint(datadir.Format)},
	{"backup", "backup_format", fmt.Sprint(backup.Format)},
	{"snapshot of a lane", "snapshot_format", fmt.Sprint(domain.SnapshotFormat)},
	{"snapshot of a scheduler", "scheduler_format", fmt.Sprint(timers.Format)},
	{"push", "push_format", fmt.Sprint(push.Format)},
	{"schema of the read tables", "schema_format", fmt.Sprint(schema.Format)},
}

// build is what the linker set.
func build() cli.Build { return cli.Build{Version: version, Commit: commit} }

func (m *Main) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, its commit, and the number of each format", Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			revision, _ := build().Revision()
			if m.global.output == outputJSON { // in this order: a map would sort them
				line := fmt.Sprintf(`{"version":%q,"commit":%q,"go":%q,"contract":%q`, build(), revision, runtime.Version(), contract)
				for _, f := range formats[1:] {
					line += fmt.Sprintf(`,%q:%s`, f.field, f.number)
				}
				_, err := fmt.Fprintln(m.Out, line+"}")
				return err
			}
			var list []string
			for _, f := range formats {
				list = append(list, f.name+" "+f.number)
			}
			_, err := fmt.Fprintf(m.Out, "scrip %s, commit %s, %s\nformats: %s\n", build(), revision, runtime.Version(), strings.Join(list, ", "))
			return err
		},
	}
	idFlag(cmd, false)
	return cmd
}
