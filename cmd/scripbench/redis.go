package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisServer is a redis-server with an append-only file. The file is never rewritten meanwhile, and no snapshots are
// made: both would only slow it.
type redisServer struct {
	binary, version string

	proc       *process
	addr       string
	durability durability
	rdb        *redis.Client
	scripts    redisScripts
}

func (r *redisServer) missing() error {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return errors.New("redis-server is missing: apt-get install -y redis-server (docker/setup.sh bench does)")
	}
	r.binary = binary
	return nil
}

// fsync is Redis' word for a durability.
func (d durability) fsync() string {
	if d == interval {
		return "everysec"
	}
	return "always"
}

func (r *redisServer) start(ctx context.Context, dir string, d durability) error {
	r.durability = d
	port, err := freePort()
	if err != nil {
		return err
	}
	r.addr = net.JoinHostPort("127.0.0.1", port)
	r.proc, err = startProcess(filepath.Join(dir, "log"), r.binary,
		"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", d.fsync(),
		"--auto-aof-rewrite-percentage", "0", "--maxclients", "10000")
	if err != nil {
		return err
	}
	r.rdb = redis.NewClient(&redis.Options{Addr: r.addr, PoolSize: 8, ReadTimeout: patience, Protocol: 2, DisableIdentity: true})
	if err := r.ready(ctx); err != nil {
		return err
	}
	info, err := r.rdb.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			r.version = strings.TrimSpace(v)
		}
	}
	return r.scripts.load(ctx, r.rdb)
}

// freePort is free now; Redis has no way to choose one by itself.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

func (r *redisServer) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		err := r.rdb.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-r.proc.gone:
			return r.proc.died()
		case <-ctx.Done():
			return errors.Join(errors.New("it does not answer"), err, ctx.Err())
		}
	}
}

func (r *redisServer) settings() string {
	return fmt.Sprintf("redis-server %s, appendonly yes, appendfsync %s, no rewrites, no snapshots", r.version, r.durability.fsync())
}

func (r *redisServer) pid() int { return r.proc.pid() }

func (r *redisServer) settle(context.Context) error { return nil }

func (r *redisServer) stop() {
	if r.rdb != nil {
		_ = r.rdb.Close()
	}
	if r.proc != nil {
		r.proc.stop(stopWithin)
	}
}
