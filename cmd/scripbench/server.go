package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// durability is what is on disk when a system answers. Only equal ones are compared.
type durability string

const (
	// always: each answered change is on disk. scrip --sync always, Redis appendfsync always, PostgreSQL
	// synchronous_commit on.
	always durability = "always"
	// interval: changes of the last second or two may be lost on power loss. scrip --sync interval, Redis appendfsync
	// everysec, PostgreSQL synchronous_commit off.
	interval durability = "interval"
)

// choose is the first value for always, the second for interval.
func (d durability) choose(forAlways, forInterval string) string {
	if d == interval {
		return forInterval
	}
	return forAlways
}

// label is the text for people.
func (d durability) label() string {
	return d.choose("always (on disk before the answer)", "interval (may lose the last seconds on power loss)")
}

const (
	// readyWithin is how long a server may take to start, stopWithin to stop; readyEvery is how often it is polled.
	readyWithin, stopWithin = time.Minute, 20 * time.Second
	readyEvery              = 20 * time.Millisecond
	// settleWithin is how long the read tables may take to catch up.
	settleWithin = 10 * time.Minute
)

// server is a system that is started for a benchmark.
type server interface {
	// missing reports what has to be installed, nil if nothing.
	missing() error
	// start runs it on a directory of its own.
	start(ctx context.Context, dir string, d durability) error
	// settings that matter, in one line; known once started.
	settings() string
	// pids are the roots of its processes.
	pids() []int
	// settle waits until the server has no background work left, so that a run does not pay for the one before.
	settle(ctx context.Context) error
	stop()
}

// bench is the servers of a benchmark, at one durability.
type bench struct {
	dir        string
	durability durability
	scrip      *scripServer
	limit      *scripServer
	redis      *redisServer
	postgres   *postgresServer
	started    []server
}

// newBench describes the servers; nothing runs yet.
func newBench(d durability, scripBinary string) *bench {
	return &bench{
		durability: d,
		scrip:      &scripServer{binary: scripBinary},
		limit:      &scripServer{binary: scripBinary, bare: true},
		redis:      &redisServer{},
		postgres:   &postgresServer{},
	}
}

// What a recipe runs on.
func onScrip(b *bench) server    { return b.scrip }
func onLimit(b *bench) server    { return b.limit }
func onRedis(b *bench) server    { return b.redis }
func onPostgres(b *bench) server { return b.postgres }

// missing reports everything that the recipes need and that this machine lacks.
func (b *bench) missing(recipes []recipe) error {
	var problems []error
	var checked []server
	for _, r := range recipes {
		sv := r.server(b)
		if slices.Contains(checked, sv) {
			continue
		}
		checked = append(checked, sv)
		if err := sv.missing(); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", r.name, err))
		}
	}
	if problems != nil {
		problems = append(problems, errors.New("or choose others with --systems"))
	}
	return errors.Join(problems...)
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
		b.started = append(b.started, sv)
		if err := sv.start(ctx, dir, b.durability); err != nil {
			return fmt.Errorf("starting %s: %w", r.name, err)
		}
	}
	return nil
}

// down stops all servers and removes their files.
func (b *bench) down() error {
	for _, sv := range slices.Backward(b.started) {
		sv.stop()
	}
	b.started = nil
	if b.dir == "" {
		return nil
	}
	return os.RemoveAll(b.dir)
}

// with starts the servers that the recipes need, runs work and stops them.
func (o options) with(ctx context.Context, d durability, recipes []recipe, work func(*bench) error) (err error) {
	b := newBench(d, o.scrip)
	b.scrip.roles, b.scrip.within = o.roles, o.within
	if err := b.missing(recipes); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.down()) }()
	if err := b.up(ctx, o.base, recipes); err != nil {
		return err
	}
	return work(b)
}

// alone runs work with scrip only.
func (o options) alone(ctx context.Context, d durability, work func(*bench) error) error {
	return o.with(ctx, d, recipes[:1], work)
}
