package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
)

// webNode is a server of HTTP that is a program without a store of its own.
type webNode struct {
	node
	addr string
}

// serve starts a program that listens on a free port. arguments returns its arguments for the port.
func (s *webNode) serve(ctx context.Context, program string, arguments func(port string) []string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	s.addr = net.JoinHostPort("127.0.0.1", port)
	return s.run(ctx, readyWithin, func(*process.Process) error {
		c, err := net.DialTimeout("tcp", s.addr, pollEvery)
		if err != nil {
			return fmt.Errorf("%w ready: %w", process.ErrWaiting, err)
		}
		return c.Close()
	}, program, arguments(port)...)
}

// peer starts this program as one of its peers.
func (s *webNode) peer(ctx context.Context, flags ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return s.serve(ctx, self, func(port string) []string {
		return append([]string{"peer", "--listen", net.JoinHostPort("127.0.0.1", port)}, flags...)
	})
}

// bareServer is net/http alone.
type bareServer struct{ webNode }

func (s *bareServer) missing() error                  { return nil }
func (s *bareServer) start(ctx context.Context) error { return s.peer(ctx) }
func (s *bareServer) settings() string {
	return "net/http alone: reads the body, answers as many bytes as scrip; nothing is stored"
}

func (s *bareServer) prepare(context.Context, *plan) (target, error) {
	return target{addr: s.addr, bare: true}, nil
}

// goServer is net/http before a PostgreSQL.
type goServer struct {
	webNode
	postgres *postgresServer
}

func (s *goServer) missing() error { return s.postgres.missing() }

func (s *goServer) start(ctx context.Context) (err error) {
	if s.postgres.dir, err = within(&s.node, "postgres"); err != nil {
		return err
	}
	if err := s.postgres.start(ctx); err != nil {
		return err
	}
	return s.peer(ctx, "--postgres", s.postgres.url)
}

func (s *goServer) settings() string {
	return fmt.Sprintf("net/http, pgx with %d connections; %s", pgCallers, s.postgres.settings())
}

func (s *goServer) pids() []int { return append(s.webNode.pids(), s.postgres.pids()...) }

func (s *goServer) stop(within time.Duration) {
	s.webNode.stop(within)
	s.postgres.stop(within)
}

func (s *goServer) prepare(ctx context.Context, p *plan) (target, error) {
	return target{addr: s.addr, check: func(ctx context.Context, t tally) error { return s.postgres.given(ctx, p, t, false) }}, s.postgres.fillCoupons(ctx, p)
}

// expressServer is Express before a Redis. Express is installed by npm into the server's directory, which is removed at the
// end.
type expressServer struct {
	webNode
	redis *redisServer
}

// missing reports Redis only: without node and npm the peer is left out, see errLeftOut.
func (s *expressServer) missing() error { return s.redis.missing() }

// installWithin bounds npm.
const installWithin = 2 * time.Minute

func (s *expressServer) start(ctx context.Context) (err error) {
	for _, name := range []string{"package.json", "server.js", "claim.lua"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(recipeText("express/"+name)), 0o600); err != nil {
			return err
		}
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return fmt.Errorf("%w: node is not installed", errLeftOut)
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("%w: npm is not installed", errLeftOut)
	}
	installing, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	install := exec.CommandContext(installing, npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--prefer-offline", "--fetch-retries=0")
	install.Dir = s.dir
	if out, err := install.CombinedOutput(); err != nil {
		lines := strings.Fields(string(out))
		return fmt.Errorf("%w: npm install: %w: %s", errLeftOut, err, strings.Join(lines[:min(len(lines), 20)], " "))
	}
	if s.redis.dir, err = within(&s.node, "redis"); err != nil {
		return err
	}
	if err := s.redis.start(ctx); err != nil {
		return err
	}
	_, redisPort, err := net.SplitHostPort(s.redis.addr)
	if err != nil {
		return err
	}
	return s.serve(ctx, node, func(port string) []string { return []string{filepath.Join(s.dir, "server.js"), port, redisPort} })
}

func (s *expressServer) settings() string {
	version, _ := exec.Command("node", "--version").Output()
	pinned := regexp.MustCompile(`"(express|ioredis)": "([^"]+)"`).FindAllStringSubmatch(recipeText("express/package.json"), -1)
	text := "node " + strings.TrimSpace(string(version)) + ", one process per core"
	for _, p := range pinned {
		text += ", " + p[1] + " " + p[2]
	}
	return text + "; " + s.redis.settings()
}

func (s *expressServer) pids() []int { return append(s.webNode.pids(), s.redis.pids()...) }

func (s *expressServer) stop(within time.Duration) {
	s.webNode.stop(within)
	s.redis.stop(within)
}

func (s *expressServer) prepare(ctx context.Context, p *plan) (target, error) {
	return target{addr: s.addr, check: func(ctx context.Context, t tally) error { return s.redis.given(ctx, p, t) }}, s.redis.fillCodes(ctx, p)
}

// errLeftOut is the error of a server whose programs come from elsewhere and are not here: its recipes are left out of the
// comparison, with the reason.
var errLeftOut = errors.New("left out")

// within makes a directory of a part below that of a server.
func within(n *node, part string) (string, error) {
	dir := filepath.Join(n.dir, part)
	return dir, os.Mkdir(dir, 0o755)
}
