// Command scripbench measures scrip beside its peers: on the same machine, in the same run, with the same job.
//
//	                       ┌─> scrip serve ──────── SDK, or one request per claim
//	workload ──> driver ───┼─> redis-server ─────── Lua, plain and pipelined
//	 (plan.go)  (drive.go) ├─> postgres ─────────── SKIP LOCKED row by row and in batches; a counter row
//	                       ├─> Express, net/http ── claims over HTTP, before Redis and PostgreSQL (http_peers.go)
//	                       └─> scrip's own NATS ─── bare publishes of the same bytes: the limit
//	                 │
//	                 └──> rates, latencies, CPU, memory ──> medians ──> ratios ──> table, JSON, chart (report)
//
// A number alone depends on the disk, the cores and other programs. So results are ratios within a run, at equal
// durability, with the settings beside them. And a wrong answer has no speed: after each run the codes given out must be
// distinct, and the server must hold as many coupons as were answered; otherwise the run fails.
//
// Jobs that are due at an instant (expire, remind, pending) have no callers: all are due at one instant, and the time until
// the last is done is measured (due.go). What holding much costs is measured by one cycle (cycle.go): fill, stop, start,
// kill, start.
//
// Every server is a process of its own, on a free port of the loopback, in a directory that is removed at the end. This is
// a module of its own: the product does not require the peers' clients.
//
// Owner: no server and no other program. Killed by SIGKILL it leaves its directory, and on Linux no server: the kernel ends
// them.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

// version is set by the linker.
var version = "unknown"

func main() { os.Exit(run(cli.Context(), os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program: results go to out, progress and errors to progress. It returns the exit code.
func run(ctx context.Context, args []string, out, progress io.Writer) int {
	root := cli.Group("scripbench", "Measure scrip beside its peers",
		runCommand(), growthCommand(), restartCommand(), tablesCommand(), expireCommand(), remindCommand(), pendingCommand(), plotCommand(), peerCommand())
	cli.Prepare(root, nil, out, progress)
	return cli.Execute(ctx, root, args, progress)
}

func plotCommand() *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use: "plot FILE.svg REPORT.json...", Short: "Draw reports that -o json or --results wrote", Args: cobra.MinimumNArgs(2),
	}
	cmd.Flags().StringSliceVar(&only, "workload", nil, "some of the workloads, separated by commas; absent = all that were measured")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if _, err := named(workloads, workloadName, only, "%q is no workload; there are %s"); err != nil {
			return err
		}
		var all report.Report
		for _, path := range args[1:] {
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			var r report.Report
			if err := json.Unmarshal(raw, &r); err != nil {
				return fmt.Errorf("%s is no report of scripbench: %w", path, err)
			}
			for _, result := range r.Results() {
				if t, ok := result.(*report.Table); !ok || len(only) == 0 || slices.Contains(only, t.Workload) {
					all.Add(result)
				}
			}
		}
		return atomicfile.WriteFunc(args[0], 0o644, func(w *os.File) error { return all.Chart(w) })
	}
	return cmd
}
