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

// redisServer is a redis-server with an append-only file. The file is not rewritten during a run, and no snapshots are
// written: both would only slow it.
type redisServer struct {
	binary, version string

	dir        string
	proc       *process
	addr       string
	durability durability
	rdb        *redis.Client
}

func (r *redisServer) missing() (err error) {
	if r.binary, err = exec.LookPath("redis-server"); err != nil {
		return errors.New("redis-server is missing: apt-get install -y redis-server (docker/setup.sh bench does)")
	}
	return nil
}

// fsync is the value of appendfsync.
func (d durability) fsync() string { return d.choose("always", "everysec") }

func (r *redisServer) start(ctx context.Context, dir string, d durability) error {
	r.dir, r.durability = dir, d
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
	r.rdb = r.client(8)
	ready, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	err = poll(ready, r.proc, readyEvery, func() error {
		if err := r.rdb.Ping(ready).Err(); err != nil {
			return fmt.Errorf("%w ready: %w", errWaiting, err)
		}
		return nil
	})
	if err != nil {
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
	for _, script := range []*redis.Script{redisClaim, redisClaimToRedeem, redisRedeem} {
		if err := script.Load(ctx, r.rdb).Err(); err != nil {
			return err
		}
	}
	return nil
}

// client has up to so many connections. It does not retry: a script that ran twice would give a wrong answer.
func (r *redisServer) client(connections int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: r.addr, PoolSize: connections, ReadTimeout: patience, WriteTimeout: patience, Protocol: 2, DisableIdentity: true, MaxRetries: -1,
	})
}

// freePort is free now; Redis cannot choose one by itself.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

func (r *redisServer) settings() string {
	return fmt.Sprintf("redis-server %s, appendonly yes, appendfsync %s, no rewrites, no snapshots", r.version, r.durability.fsync())
}

func (r *redisServer) pids() []int { return []int{r.proc.pid()} }

func (r *redisServer) settle(context.Context) error { return nil }

func (r *redisServer) stop() {
	if r.rdb != nil {
		_ = r.rdb.Close()
	}
	if r.proc != nil {
		r.proc.stop(stopWithin)
	}
}

// restart stops Redis cleanly, starts it on the same files and returns how many seconds the start took.
func (r *redisServer) restart(ctx context.Context, d durability) (seconds float64, err error) {
	_ = r.rdb.Close()
	r.proc.stop(pendingStop)
	began := time.Now()
	err = r.start(ctx, r.dir, d)
	return time.Since(began).Seconds(), err
}

// fill pipelines the commands that add makes for chunks [from, to) of n items.
func (r *redisServer) fill(ctx context.Context, n, chunk int, add func(pipe redis.Pipeliner, from, to int)) error {
	pipe := r.rdb.Pipeline()
	for from := 0; from < n; from += chunk {
		to := min(from+chunk, n)
		add(pipe, from, to)
		if pipe.Len() >= redisFillLists || to == n {
			if _, err := pipe.Exec(ctx); err != nil {
				return fmt.Errorf("filling Redis: %w", err)
			}
		}
	}
	return nil
}

const (
	// redisFill is how many items a command has when Redis is filled, redisFillLists after how many commands a pipeline
	// is sent.
	redisFill, redisFillLists = 1000, 32
)
