package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// durability is how much a system has written when it answers. Only equal ones are compared.
type durability string

const (
	// always: what was answered is on disk. scrip --sync always, Redis appendfsync always, PostgreSQL
	// synchronous_commit on.
	always durability = "always"
	// interval: what was answered in the last second or two may be lost on power loss. scrip --sync interval, Redis
	// appendfsync everysec, PostgreSQL synchronous_commit off.
	interval durability = "interval"
)

// label is how a durability is shown.
func (d durability) label() string {
	if d == interval {
		return "interval (may lose the last seconds on power loss)"
	}
	return "always (on disk before the answer)"
}

// stopWithin is how long a server may take to end.
const stopWithin = 20 * time.Second

// server is a system that has been started for a benchmark.
type server interface {
	// missing says what has to be installed, nil if nothing.
	missing() error
	// start runs it on a directory of its own.
	start(ctx context.Context, dir string, d durability) error
	// settings that matter, in one line; known once started.
	settings() string
	// pid is the root of its processes.
	pid() int
	// settle waits until the server has nothing left to do in the background, so that a run does not pay for the one
	// before.
	settle(ctx context.Context) error
	stop()
}

// stand is all servers of a benchmark, at one durability.
type stand struct {
	dir        string
	durability durability
	scrip      *scripServer
	limit      *scripServer
	redis      *redisServer
	postgres   *postgresServer
	started    []server
}

// newStand describes the servers; nothing runs yet.
func newStand(d durability, scripBinary string) *stand {
	return &stand{
		durability: d,
		scrip:      &scripServer{binary: scripBinary},
		limit:      &scripServer{binary: scripBinary, bare: true},
		redis:      &redisServer{},
		postgres:   &postgresServer{},
	}
}

// missing says everything that the recipes need and that is not on this machine.
func (s *stand) missing(recipes []recipe) error {
	var problems []error
	asked := map[server]bool{}
	for _, r := range recipes {
		sv := r.server(s)
		if asked[sv] {
			continue
		}
		asked[sv] = true
		if err := sv.missing(); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", r.name, err))
		}
	}
	if problems != nil {
		problems = append(problems, errors.New("or choose what there is with --systems"))
	}
	return errors.Join(problems...)
}

// up starts the servers that the recipes need, below a new directory in base.
func (s *stand) up(ctx context.Context, base string, recipes []recipe) error {
	dir, err := os.MkdirTemp(base, "scripbench-")
	if err != nil {
		return err
	}
	s.dir = dir
	// PostgreSQL runs as another user when we are root, and must get through.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for i, r := range recipes {
		sv := r.server(s)
		if s.has(sv) {
			continue
		}
		place := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(place, 0o755); err != nil {
			return err
		}
		s.started = append(s.started, sv)
		if err := sv.start(ctx, place, s.durability); err != nil {
			return fmt.Errorf("starting %s: %w", r.name, err)
		}
	}
	return nil
}

func (s *stand) has(sv server) bool {
	for _, other := range s.started {
		if other == sv {
			return true
		}
	}
	return false
}

// down stops all servers and removes what they wrote.
func (s *stand) down() error {
	for i := len(s.started) - 1; i >= 0; i-- {
		s.started[i].stop()
	}
	s.started = nil
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// alone starts scrip by itself, has work done with it, and stops it.
func (o options) alone(ctx context.Context, d durability, work func(*stand) error) (err error) {
	st := newStand(d, o.scrip)
	ours := recipes[:1]
	if err := st.missing(ours); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.down()) }()
	if err := st.up(ctx, o.base, ours); err != nil {
		return err
	}
	return work(st)
}
