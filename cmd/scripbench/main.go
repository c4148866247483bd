// Command scripbench measures scrip beside its peers: on the same machine, in the same run, with the same job.
//
//	                       ┌─> scrip serve ──────── SDK, or one request per claim
//	workload ──> driver ───┼─> redis-server ─────── Lua, plain and pipelined
//	 (plan.go)  (drive.go) ├─> postgres ─────────── SKIP LOCKED row by row and in batches; a counter row
//	                       └─> scrip's own NATS ─── bare publishes of the same bytes: the limit
//	                 │
//	                 └──> rates, latencies, CPU, memory ──> medians ──> ratios ──> table, JSON, plot
//
// A number alone depends on the disk, the cores and other programs. So results are ratios within a run, at equal
// durability, with the settings beside them. And a wrong answer has no speed: after each run the codes given out must be
// distinct, and the server must hold as many coupons as were answered; otherwise the run fails.
//
// Jobs that are due at an instant (expire, remind, pending) have no callers: all are due at one instant, and the time until
// the last is done is measured (due.go).
//
// Every server is a process of its own, on a free port of the loopback, in a directory that is removed at the end. This is
// a module of its own: the product does not require the peers' clients.
//
// Owner: no server and no other program. Killed by SIGKILL it leaves its directory, and on Linux no server: the kernel ends
// them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// usageError is a wrong command line.
type usageError struct{ error }

// run is the program: results go to out, progress and errors to progress. It returns the exit code: 0 done, 1 failed, 2
// usage.
func run(ctx context.Context, args []string, out, progress io.Writer) int {
	root := &cobra.Command{
		Use: "scripbench", Short: "Measure scrip beside its peers", SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(runCommand(), growthCommand(), restartCommand(), tablesCommand(), expireCommand(), remindCommand(), pendingCommand(), plotCommand())
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(progress)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(progress, "scripbench:", err)
	if errors.As(err, new(usageError)) {
		return 2
	}
	return 1
}
