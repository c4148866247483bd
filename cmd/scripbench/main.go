// Command scripbench measures scrip beside its peers: on the same machine, in the same run, with the same job.
//
//	                       ┌─> scrip serve ──────── SDK, or one request per claim
//	workload ──> driver ───┼─> redis-server ─────── Lua, plain and pipelined
//	 (plan.go)  (drive.go) ├─> postgres ─────────── SKIP LOCKED row by row and in batches; River
//	                       ├─> net/http ─────────── answers claims over HTTP and stores nothing (peer.go)
//	                       └─> scrip's own NATS ─── bare publishes of the same bytes: the limit
//	                 │
//	                 └──> rates, latencies, CPU, memory ──> medians ──> ratios ──> table, JSON (report)
//
// A number alone depends on the disk, the cores and other programs. So results are ratios within a run, at equal
// durability, with the settings beside them. And a wrong answer has no speed: after each run the codes given out must be
// distinct, and the server must hold as many coupons as were answered; otherwise the run fails.
//
// Jobs that are due at an instant (expire, remind) have no callers: all are due at one instant, and the time until
// the last is done is measured (due.go). What holding much costs is measured by one cycle (held.go): fill, stop, start,
// kill, start.
//
// Every server is a process of its own, on a free port of the loopback, in a directory that is removed at the end. This is
// a module of its own: the product does not require the peers' clients.
//
// Owner: no server and no other program. Killed by SIGKILL it leaves its directory and the servers, but PostgreSQL, which ends with it.
package main

import (
	"context"
	"io"
	"os"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
)

// version is set by the linker.
var version = "unknown"

func main() { os.Exit(run(cli.Context(), os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program: results go to out, progress and errors to progress. It returns the exit code.
func run(ctx context.Context, args []string, out, progress io.Writer) int {
	root := cli.Group("scripbench", "Measure scrip beside its peers",
		runCommand(), lookUpCommand(), restartCommand(), tablesCommand(), expireCommand(), remindCommand(), mergeCommand(), pendingCommand(), peerCommand())
	cli.Prepare(root, nil, out, progress)
	return cli.Execute(ctx, root, args)
}
