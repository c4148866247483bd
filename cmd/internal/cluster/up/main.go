// Command up runs the cluster of docker/compose.cluster.yaml as processes, or gives a command to one that runs; see
// `make cluster`.
//
//	up                     start it; Ctrl-C stops all
//	up status              what runs, and where to reach it
//	up kill nats-2         also start, stop, pause, resume, cut and heal, and other services
//
// Owner: the terminal. If it is killed, the processes go on, and the next start names them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, stderr io.Writer) error {
	o := cluster.Options{Out: out, Set: map[string]string{}}
	f := flag.NewFlagSet("cluster", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.Folder, "data", "./cluster", "the `folder` of all data")
	f.StringVar(&o.Compose, "compose", "docker/compose.cluster.yaml", "the compose `file`")
	f.StringVar(&o.Scrip, "scrip", "bin/scrip", "the `program` scrip")
	f.StringVar(&o.NATSServer, "nats-server", "bin/nats-server", "the `program` nats-server")
	f.IntVar(&o.Port, "port", cluster.DefaultPort, "first port; NATS listens from it on, scrip's HTTP 30 higher; 0 = free ports")
	f.BoolVar(&o.Cuttable, "cut", false, "allow the commands cut and heal: all traffic goes through links, at some cost")
	f.Func("set", "a variable of the compose file, `NAME=VALUE`, such as SCRIP_LANES=4 (may be repeated)", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("must be NAME=VALUE")
		}
		o.Set[name] = value
		return nil
	})
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		answer, err := cluster.Send(ctx, o.Folder, f.Args()...)
		fmt.Fprint(out, answer)
		return err
	}
	o.Self = os.Args[0] + " -data " + o.Folder
	return serve(ctx, o)
}

// serve runs a cluster until ctx ends.
func serve(ctx context.Context, o cluster.Options) error {
	c, err := cluster.Open(o)
	if err != nil {
		return err
	}
	err = c.Start(ctx)
	if err == nil {
		fmt.Fprint(o.Out, c.Status())
		fmt.Fprintf(o.Out, "\nready. In another terminal: %s status --data %s\nCtrl-C stops all. A fault to try: %s kill nats-2, and later start nats-2\n", o.Scrip, c.Data(), o.Self)
		err = c.Control(ctx)
	}
	if ctx.Err() != nil {
		err = nil // stopped by the user, perhaps during the start
		fmt.Fprintln(o.Out, "stopping")
	}
	return errors.Join(err, c.Close())
}
