// Command pushsender delivers fired reminders: a small sender, and the example of how to build one on streams/push.
//
//	scrip serve ──> SCRIP_RMD_<lane> ──> pushsender ─┬─> POST to a webhook, up to 500 reminders each
//	                                 ──> pushsender ─┘   (without one: a JSON line each on standard output)
//	                                          └── after --tries failures ──> dead letter: pushsender dead, pushsender retry
//
// All processes with the same --name share the work; start more of them to send faster. Each reminder is delivered at
// least once, under the same key each time: see streams/push.
//
// Owner: none. The reminders in flight of a process that is killed are delivered to the others after half a minute.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/wall"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

// version and commit are set by the linker in releases.
var version, commit string

func main() {
	m := &Main{Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Clock: wall.Machine}
	os.Exit(m.Run(cli.Context(), os.Args[1:])) // ends after the pushes in flight
}

// Main is the program with its inputs and outputs, so that tests can run it in process.
type Main struct {
	Out, Err io.Writer
	Env      func(string) (string, bool)
	Clock    wall.Clock

	data, nats, name, webhook, proxy, since, sealKey, secret string
	secrets                                                  []signature.Secret
	json, verbose                                            bool
	opts                                                     push.Options
	natsFlags                                                cli.NATSFlags
	printing                                                 chan struct{}           // of one, has what is being written to Out
	lost                                                     context.CancelCauseFunc // ends sending because Out is gone
}

// Run runs one command line and returns the exit code.
func (m *Main) Run(ctx context.Context, args []string) int {
	m.printing = make(chan struct{}, 1)
	return cli.Execute(ctx, m.root(), args)
}

func (m *Main) root() *cobra.Command {
	root := &cobra.Command{
		Use: "pushsender", Short: "Deliver fired reminders to a webhook or to standard output",
		Long: `Deliver fired reminders to a webhook or to standard output.

  pushsender                                         one JSON line each on standard output
  pushsender --webhook https://push.example/send     POST them, up to 500 at once
  pushsender dead                                    list dead letters and their errors
  pushsender retry --webhook URL                     retry dead letters

Start any number of processes with one --name, on any machines: each reminder is delivered to one of them. Another --name is
another audience, which also gets all of them. A new name starts with reminders that fire after its start, see --since.

A webhook gets a JSON array of {"key","campaign","kind","due_at","at","customer_id"}. 2xx means that all were delivered; 207
with {"failed":[0,3]} that those, counted from 0, were not; any other status that none was. Failed reminders are retried after
2 s, 6 s, 18 s … (or --pause), --tries times; then they are dead letters. A reminder may be delivered twice, after a crash
between push and acknowledgement: its "key" is the same each time, and so is the header Idempotency-Key of the same array.

A key of role sender is enough (scrip access create NAME --role sender), in a file, --nats-token-file, or in the URL, as
--nats nats://KEY@HOST:4222. It delivers for the --name that its own name starts with, and may do nothing else.

The server is found by --nats, else by the file scrip.json that it writes to its --data directory; --nats, --data,
--webhook and --secret can also be set by variables SCRIP_NATS, SCRIP_DATA, SCRIP_WEBHOOK, SCRIP_SECRET, or SCRIP_NATS_FILE … for
a file with the value.
With --seal-key-file, SCRIP_SEAL_KEY or SCRIP_SEAL_KEY_FILE, messages without scrip's seal are ignored. Ctrl-C ends after the
pushes in flight.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Args: cli.NoArgs, RunE: m.send,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return m.settle(cmd) },
	}
	cli.Prepare(root, nil, m.Out, m.Err)
	build := cli.Build{Version: version, Commit: commit}
	revision, _ := build.Revision()
	root.Version = fmt.Sprintf("%s, commit %s, %s", build, revision, runtime.Version())
	root.SetVersionTemplate("pushsender {{.Version}}\n")
	root.Flags().Bool("version", false, "print the version and its commit")
	all := root.PersistentFlags()
	all.StringVar(&m.data, "data", "./data", "data `DIR`ectory of the server, in which clients find its address")
	all.StringVar(&m.nats, "nats", "", "`URL` of the NATS server, with credentials if it requires them; then no --data is needed")
	all.StringVar(&m.name, "name", "pushsender", "`NAME` shared by all processes of one audience; without it dead lists all names")

	cli.WithVariable(all, "data", "nats")
	m.natsFlags.Add(all)
	all.StringVar(&m.sealKey, datadir.SealKeyFlag, "", datadir.SealKeyUsage)

	sending := func(cmd *cobra.Command) {
		f := cmd.Flags()
		f.StringVar(&m.webhook, "webhook", "", "`URL` to POST reminders to, instead of printing them")
		f.StringVar(&m.secret, "secret", "", "sign requests to the webhook with this `SECRET`, whsec_…, by the Standard Webhooks specification; several, separated by blanks, sign all")
		cli.WithVariable(f, "webhook", "secret")
		f.StringVar(&m.proxy, "proxy", "", "`URL` of an HTTP proxy for the webhook; HTTP_PROXY and HTTPS_PROXY are not read")
		f.BoolVar(&m.verbose, "verbose", false, "log the webhook's response to a failed push")
		f.DurationVar(&m.opts.Timeout, "timeout", 30*time.Second, "how long one push may take")
		f.IntVar(&m.opts.Batch, "batch", push.MaxBatch, "most reminders in one push, up to 500")
	}
	sending(root)
	f := root.Flags()
	f.IntVar(&m.opts.Workers, "workers", 4, "how many pushes are in flight at once")
	f.IntVar(&m.opts.Tries, "tries", 5, "how many failed tries make a reminder a dead letter; while the webhook is away none counts")
	f.DurationVar(&m.opts.Pause, "pause", 2*time.Second, "how long to wait after the first failure; each further pause is three times as long, up to a minute")
	f.DurationVar(&m.opts.MaxAge, "max-age", 24*time.Hour, "how long after it fired a reminder is still delivered; later it is a dead letter")
	f.StringVar(&m.since, "since", "now", "where a new name starts: now, start, or an RFC 3339 `TIME`")

	dead := &cobra.Command{Use: "dead", Short: "List dead letters, oldest first", Args: cli.NoArgs, RunE: m.dead}
	dead.Flags().BoolVar(&m.json, "json", false, "one JSON line each, with the reminders")
	retry := &cobra.Command{
		Use: "retry", Short: "Retry dead letters, each once", Args: cli.NoArgs, RunE: m.retry,
		Long: `Retry dead letters, each once: a delivered one is removed, a failed one stays with the new error, and makes the exit code 1.`,
	}
	sending(retry)
	root.AddCommand(dead, retry)
	root.InitDefaultHelpCmd()
	return root
}

// settle sets flags from variables and checks them.
func (m *Main) settle(cmd *cobra.Command) error {
	err := cli.FromEnvironment(cmd, m.Env)
	if err != nil {
		return err
	}
	if m.opts.SealKey, err = datadir.SealKey(m.Env, m.sealKey); err != nil {
		return &cli.UsageError{Err: err}
	}
	m.opts.Name = m.name
	m.opts.Logger = slog.New(slog.NewTextHandler(m.Err, &slog.HandlerOptions{Level: m.level()}))
	switch m.since {
	case "now", "":
	case "start":
		m.opts.Since = push.FromStart()
	default:
		t, err := time.Parse(time.RFC3339, m.since)
		if err != nil {
			return cli.Usagef("--since is %q; give now, start, or an RFC 3339 time such as 2026-11-27T00:00:00Z", m.since)
		}
		m.opts.Since = push.From(t)
	}
	for flag, n := range map[string]int{"workers": m.opts.Workers, "tries": m.opts.Tries, "batch": m.opts.Batch, "timeout": int(m.opts.Timeout), "pause": int(m.opts.Pause), "max-age": int(m.opts.MaxAge)} {
		if cmd.Flags().Changed(flag) && n <= 0 {
			return cli.Usagef("--%s must be greater than 0", flag)
		}
	}
	m.secrets = nil
	for text := range strings.FieldsSeq(m.secret) {
		secret, err := signature.Parse(text)
		if err != nil {
			return cli.Usagef("--secret: %v", err)
		}
		m.secrets = append(m.secrets, secret)
	}
	if err := m.opts.Check(); err != nil {
		return &cli.UsageError{Err: err}
	}
	if err := checkURL("proxy", m.proxy, "http://proxy.example:3128"); err != nil {
		return err
	}
	return checkURL("webhook", m.webhook, "https://push.example/send")
}

func (m *Main) level() slog.Level {
	if m.verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// connect finds the server and connects to it. Once connected it reconnects without a limit, unless the key is revoked.
func (m *Main) connect() (*nats.Conn, jetstream.JetStream, error) {
	server, err := datadir.Locate(m.nats, m.data)
	if err != nil {
		return nil, nil, err
	}
	given, err := m.natsFlags.Options()
	if err != nil {
		return nil, nil, err
	}
	if m.nats == "" && m.natsFlags.Credentials() {
		// Credentials in the URL take precedence in nats.go, and those of scrip.json are the servers'.
		server.NATSURL = natsx.WithoutUser(server.NATSURL)
	}
	log := m.opts.Logger
	nc, err := server.Connect(m.data, "scrip push sender "+m.name, append(given,
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil when this process closes the connection
				log.Warn("connection lost; reconnecting", "err", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("connection restored", "url", natsx.WithoutUser(nc.ConnectedUrl())) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("NATS connection error", "err", err) }))...)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	return nc, js, err
}
