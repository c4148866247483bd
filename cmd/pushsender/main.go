// Command pushsender tells customers of the reminders that have fired: a message centre in small, and the example of
// how to build one on streams/push.
//
//	scrip serve ──> SCRIP_RMD_<lane> ──> pushsender ─┬─> POST to a webhook, up to 500 reminders each
//	                                 ──> pushsender ─┘   (without one: a JSON line each on standard output)
//	                                          └── after --tries failures ──> dead letter: pushsender dead, pushsender retry
//
// All that run under the same --name share the work; start more of them to send faster. What each promises stands in
// streams/push: everybody is told at least once, under the same key each time.
//
// Owner: nobody. One that is killed leaves what it had in hand to the others, after half a minute.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/terminal"
	"github.com/seed-4a2410e3/scrip/streams/push"
)

// Exit codes, as scrip's.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	m := &Main{Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Now: time.Now}
	// The first signal asks politely: what is under way is finished. The second ends at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(m.Run(ctx, os.Args[1:]))
}

// Main is the program with what it touches of its surroundings, so that tests run it in process.
type Main struct {
	Out, Err io.Writer
	Env      func(string) (string, bool)
	Now      func() time.Time

	data, nats, name, webhook, proxy, since, sealKey string
	json, verbose                                    bool
	opts                                             push.Options
	printing                                         sync.Mutex // of Out: lines of several workers do not mix
}

// usageError is a command line that makes no sense.
type usageError struct{ error }

// Run runs one command line and returns the exit code.
func (m *Main) Run(ctx context.Context, args []string) int {
	root := m.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var usage *usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		fmt.Fprintf(m.Err, "pushsender: %s\nSee '%s --help'.\n", terminal.Text(err.Error()), cmd.CommandPath())
		return exitUsage
	}
	fmt.Fprintf(m.Err, "pushsender: %s\n", terminal.Text(err.Error()))
	return exitFailed
}

func (m *Main) root() *cobra.Command {
	root := &cobra.Command{
		Use: "pushsender", Short: "Tell customers of the reminders that have fired",
		Long: `Tell customers of the reminders that have fired.

  pushsender                                         one JSON line each on standard output
  pushsender --webhook https://push.example/send     POST them, up to 500 at once
  pushsender dead                                    what was given up, and why
  pushsender retry --webhook URL                     try that again

Start as many as you like under one --name, on any machines: each reminder goes to one of them. Another --name is another
audience, which gets all of them, too. A new name begins with what fires from then on, see --since.

A webhook gets a JSON array of {"key","campaign","kind","due_at","at","customer_id"}. 2xx means that all were told; 207 with
{"failed":[0,3]} that those, counted from 0, were not; anything else that nobody was. What failed is tried again after 2 s,
6 s, 18 s … (or --pause), --tries times; then it is a dead letter. A reminder may come twice, after a crash between push and
acknowledgement: its "key" is the same each time, and so is the header Idempotency-Key of the same array.

The server is found by --nats, else by the file scrip.json that it keeps in its --data directory; --nats, --data and
--webhook also as variables SCRIP_NATS, SCRIP_DATA, SCRIP_WEBHOOK, or SCRIP_NATS_FILE … for a file that holds the value. With a
--seal-key-file, also SCRIP_SEAL_KEY or SCRIP_SEAL_KEY_FILE, messages that scrip did not seal are passed over. Ctrl-C finishes what is under way.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		SilenceErrors: true, SilenceUsage: true, Args: noArgs, RunE: m.send,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return m.settle(cmd) },
	}
	root.SetOut(m.Out)
	root.SetErr(m.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	all := root.PersistentFlags()
	all.StringVar(&m.data, "data", "./data", "data `DIR`ectory of the server, where it says how to reach it")
	all.StringVar(&m.nats, "nats", "", "`URL` of the NATS server, with credentials if it asks for them; then no --data is needed")
	all.StringVar(&m.name, "name", "pushsender", "`NAME` shared by all that send to the same audience; dead lists all names without it")

	all.StringVar(&m.sealKey, datadir.SealKeyFlag, "", datadir.SealKeyUsage)

	sending := func(cmd *cobra.Command) {
		f := cmd.Flags()
		f.StringVar(&m.webhook, "webhook", "", "`URL` to POST reminders to, instead of printing them")
		f.StringVar(&m.proxy, "proxy", "", "`URL` of an HTTP proxy for the webhook; HTTP_PROXY and HTTPS_PROXY are not read")
		f.BoolVar(&m.verbose, "verbose", false, "log what the webhook responds when it refuses a push")
		f.DurationVar(&m.opts.Timeout, "timeout", 30*time.Second, "how long one push may take")
		f.IntVar(&m.opts.Batch, "batch", push.MaxBatch, "how many reminders one push may hold, up to 500")
	}
	sending(root)
	f := root.Flags()
	f.IntVar(&m.opts.Workers, "workers", 4, "how many pushes are under way at once")
	f.IntVar(&m.opts.Tries, "tries", 5, "how often a reminder is tried before it is a dead letter")
	f.DurationVar(&m.opts.Pause, "pause", 2*time.Second, "how long to wait after the first failure; each further pause is three times as long, up to a minute")
	f.StringVar(&m.since, "since", "now", "where a new name begins: now, start, or an RFC 3339 `TIME`")

	dead := &cobra.Command{Use: "dead", Short: "List what was given up, oldest first", Args: noArgs, RunE: m.dead}
	dead.Flags().BoolVar(&m.json, "json", false, "one JSON line each, with the reminders")
	retry := &cobra.Command{
		Use: "retry", Short: "Try what was given up again, each once", Args: noArgs, RunE: m.retry,
		Long: `Try what was given up again, each once: what succeeds is no dead letter any more, what fails stays one, with the new reason,
and makes the exit code 1.`,
	}
	sending(retry)
	root.AddCommand(dead, retry)
	root.InitDefaultHelpCmd()
	return root
}

func noArgs(cmd *cobra.Command, given []string) error {
	if len(given) > 0 {
		return &usageError{fmt.Errorf("it takes no %q; there are dead, retry and help", strings.Join(given, " "))}
	}
	return nil
}

// settle fills flags from variables and checks them.
func (m *Main) settle(cmd *cobra.Command) error {
	for _, flag := range []string{"nats", "data", "webhook"} {
		f := cmd.Flags().Lookup(flag)
		if f == nil || f.Changed {
			continue
		}
		value, err := datadir.Variable(m.Env, "SCRIP_"+strings.ToUpper(flag))
		if err != nil {
			return &usageError{err}
		}
		if value != "" {
			if err := f.Value.Set(value); err != nil {
				return &usageError{err}
			}
		}
	}
	var err error
	if m.opts.SealKey, err = datadir.SealKey(m.Env, m.sealKey); err != nil {
		return &usageError{err}
	}
	m.opts.Name = m.name
	level := slog.LevelInfo
	if m.verbose {
		level = slog.LevelDebug
	}
	m.opts.Logger = slog.New(slog.NewTextHandler(m.Err, &slog.HandlerOptions{Level: level}))
	switch m.since {
	case "now", "":
	case "start":
		m.opts.Since = push.FromStart()
	default:
		t, err := time.Parse(time.RFC3339, m.since)
		if err != nil {
			return &usageError{fmt.Errorf("--since is %q; give now, start, or an RFC 3339 time such as 2026-11-27T00:00:00Z", m.since)}
		}
		m.opts.Since = push.From(t)
	}
	for flag, n := range map[string]int{"workers": m.opts.Workers, "tries": m.opts.Tries, "batch": m.opts.Batch, "timeout": int(m.opts.Timeout), "pause": int(m.opts.Pause)} {
		if cmd.Flags().Changed(flag) && n <= 0 {
			return &usageError{fmt.Errorf("--%s must be more than 0", flag)}
		}
	}
	if _, err := push.New(nil, m.opts); err != nil {
		return &usageError{err}
	}
	if err := checkURL("proxy", m.proxy, "http://proxy.example:3128"); err != nil {
		return err
	}
	return checkURL("webhook", m.webhook, "https://push.example/send")
}
