package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

const (
	// readyWithin is how long a server may take to start, stopWithin to stop, unless it is full; pollEvery is how often a
	// condition is checked.
	readyWithin, stopWithin = time.Minute, 20 * time.Second
	pollEvery               = 20 * time.Millisecond
	// settleWithin is how long the read tables may take to catch up.
	settleWithin = 10 * time.Minute
)

// server is a system that is started for a benchmark.
type server interface {
	// start runs it on its node's directory. It reports what has to be installed.
	start(ctx context.Context) error
	// settings that matter, in one line; known once started.
	settings() string
	// pids are the roots of its processes.
	pids() []int
	// settle waits until the server has no background work left, so that a run does not pay for the one before.
	settle(ctx context.Context) error
	// stop ends it, cleanly within a time or, for 0, by SIGKILL.
	stop(within time.Duration)
	on() *node
}

// node is what servers have in common.
type node struct {
	dir        string
	durability report.Durability
	proc       *process.Process
}

func (n *node) on() *node                    { return n }
func (n *node) pids() []int                  { return []int{n.proc.PID()} }
func (n *node) settle(context.Context) error { return nil }

// run starts the server's program.
func (n *node) run(ctx context.Context, within time.Duration, ready func(*process.Process) error, program string, args ...string) (err error) {
	n.proc, err = process.Start(ctx, filepath.Join(n.dir, "log"), within, ready, program, args...)
	return err
}

func (n *node) stop(within time.Duration) {
	switch {
	case n.proc == nil:
	case within > 0:
		_ = n.proc.StopWithin(within) // killed after that
	default:
		n.proc.Kill()
	}
}

// bench is the servers of a benchmark, at one durability.
type bench struct {
	dir      string
	scrip    *scripServer
	limit    *scripServer
	redis    *redisServer
	postgres *postgresServer
	bare     *bareServer
	started  []server
}

// newBench describes the servers; nothing runs yet.
func (o options) newBench() *bench {
	n := node{durability: report.Durability(o.durability)}
	return &bench{
		scrip:    &scripServer{node: n, binary: o.scrip, roles: o.roles},
		limit:    &scripServer{node: n, binary: o.scrip, roles: bareRoles},
		redis:    &redisServer{node: n},
		postgres: &postgresServer{node: n},
		bare:     &bareServer{node: n},
	}
}

// recipe is the best known way to do the job with one system.
type recipe struct {
	name, about string
	server      func(*bench) server
	// fits reports whether it can do a workload, and open fills the pools for a plan and returns the job ready to go. Both are
	// nil for what is due.
	fits func(workload) bool
	open func(ctx context.Context, b *bench, p *plan) (job, error)
	// fill fills the system for what is due, nil for a workload.
	fill func(ctx context.Context, o options, b *bench) (dueWork, error)
}

func recipeName(r recipe) string { return r.name }
func (r recipe) String() string  { return fmt.Sprintf("  %-17s %s", r.name, r.about) }
func every(w workload) bool      { return w.style != overHTTP }
func webOnly(w workload) bool    { return w.style == overHTTP }
func bulkOnly(w workload) bool   { return w.style == bulk }
func onScrip(b *bench) server    { return b.scrip }
func onLimit(b *bench) server    { return b.limit }
func onRedis(b *bench) server    { return b.redis }
func onPostgres(b *bench) server { return b.postgres }
func onBare(b *bench) server     { return b.bare }

// recipes for claims, scrip first.
var recipes = []recipe{
	{name: report.Subject, about: "scrip serve, all roles; Go SDK, or a request each", server: onScrip, fits: func(workload) bool { return true }, open: openScrip},
	{name: "redis", about: "Lua: list of codes, hash of customers; a connection per caller", server: onRedis, fits: every, open: redisRecipe{pipeline: 1}.open},
	{name: "redis-x16", about: "the same, each connection pipelines 16", server: onRedis, fits: bulkOnly, open: redisRecipe{pipeline: 16}.open},
	{name: "pg-skip-locked", about: "FOR UPDATE SKIP LOCKED, one row in a transaction", server: onPostgres, fits: every, open: pgRow.open},
	{name: "pg-batch-256", about: "FOR UPDATE SKIP LOCKED, 256 claims in a transaction", server: onPostgres, fits: bulkOnly, open: pgBatch.open},
	{name: "limit", about: "bare JetStream publishes of the same command and event lines", server: onLimit, fits: func(w workload) bool { return !w.redeem && w.share == 0 && w.style != single && every(w) }, open: openLimit},
	{name: linesName, about: "POST /v1/commands, 100 claims in a request", server: onScrip, fits: webOnly, open: openScripLines},
	{name: natsName, about: "one claim in a request to the micro service", server: onScrip, fits: webOnly, open: openScripRequests},
	{name: bareName, about: "net/http alone, which stores nothing", server: onBare, fits: webOnly, open: openBare},
}

// up starts the servers that the recipes need, below a new directory in base.
func (b *bench) up(ctx context.Context, base string, recipes []recipe) (err error) {
	if b.dir, err = os.MkdirTemp(base, "scripbench-"); err != nil {
		return err
	}
	// PostgreSQL runs as another user when scripbench is root, and must be able to enter.
	if err := os.Chmod(b.dir, 0o755); err != nil {
		return err
	}
	for i, r := range recipes {
		sv := r.server(b)
		if slices.Contains(b.started, sv) {
			continue
		}
		dir := filepath.Join(b.dir, fmt.Sprint(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		sv.on().dir = dir
		b.started = append(b.started, sv)
		if err := sv.start(ctx); err != nil {
			return fmt.Errorf("starting %s (others are chosen with --systems): %w", r.name, err)
		}
	}
	return nil
}

// down stops all servers and removes their files.
func (b *bench) down() error {
	for _, sv := range slices.Backward(b.started) {
		sv.stop(stopWithin)
	}
	return os.RemoveAll(b.dir)
}

// with starts the servers that the recipes need, runs work and stops them.
func (o options) with(ctx context.Context, recipes []recipe, work func(*bench) error) (err error) {
	b := o.newBench()
	defer func() { err = errors.Join(err, b.down()) }()
	if err := b.up(ctx, o.base, recipes); err != nil {
		return err
	}
	return work(b)
}
