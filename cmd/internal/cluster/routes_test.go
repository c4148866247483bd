package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-4a2410e3/scrip/cmd/internal/process"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestOnlyNodesWithThePasswordJoin: nodes with the configuration of `make cluster`, and with docker/nats/cluster.conf, join each
// other and refuse a nats-server that has no password, or another one. Not parallel: it sets variables.
func TestOnlyNodesWithThePasswordJoin(t *testing.T) {
	t.Chdir("../../..") // as make does
	other, err := natsauth.RoutesPassword([32]byte{2})
	streamtest.Must(t, err)
	for name, change := range map[string]func(o *server.Options, routes string){
		"make cluster": nil,
		"docker/nats/cluster.conf": func(o *server.Options, routes string) { // a container has addresses of its own
			o.Host, o.Port, o.HTTPPort = "127.0.0.1", server.RANDOM_PORT, server.RANDOM_PORT
			_, err := fmt.Sscanf(strings.ReplaceAll(routes, ":", " "), "%s %d", &o.Cluster.Host, &o.Cluster.Port)
			streamtest.Must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{folder: t.TempDir(), port: freePort(t), lanes: 1}
			streamtest.Must(t, c.open())
			node := func(i int, seen *watch) *server.Server {
				var command process.Command
				streamtest.Must(t, c.node(&command, fmt.Sprint("nats-", i), i))
				path := command.Args[len(command.Args)-1]
				if change != nil {
					path = name
				}
				o := configured(t, path, command.Env)
				if change != nil {
					change(o, c.at(routesPort, i))
				}
				return run(t, o, seen)
			}
			joined := watching("Registering remote route")
			first := node(1, joined)
			second := watching(violation)
			joins(t, joined, second, node(2, second).ID(), true)
			for _, stranger := range []struct {
				user  *url.Userinfo
				joins bool
			}{
				{nil, false},
				{url.UserPassword(natsauth.RoutesUser, other), false},
				{url.UserPassword(natsauth.RoutesUser, c.routes), true}, // the others would be seen to join as this one is
			} {
				refused := watching(violation)
				fourth := run(t, &server.Options{
					ServerName: "fourth", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true,
					Cluster: server.ClusterOpts{Name: "scrip", Host: "127.0.0.1", Port: server.RANDOM_PORT},
					Routes:  []*url.URL{{Scheme: "nats", User: stranger.user, Host: first.ClusterAddr().String()}},
				}, refused)
				joins(t, joined, refused, fourth.ID(), stranger.joins)
				fourth.Shutdown()
			}
		})
	}
}

// configured reads a configuration as a nats-server with this environment does.
func configured(t *testing.T, path string, env []string) *server.Options {
	t.Helper()
	for _, one := range env {
		name, value, _ := strings.Cut(one, "=")
		t.Setenv(name, value)
	}
	o, err := server.ProcessConfigFile(path)
	streamtest.Must(t, err)
	if o.NoSigs = true; o.HTTPHost != "127.0.0.1" || o.HTTPPort == 0 {
		t.Errorf("%s: monitoring is at %s:%d", path, o.HTTPHost, o.HTTPPort)
	}
	return o
}

// TestNoArgumentIsASecret: every user of a machine can read the arguments of all processes.
func TestNoArgumentIsASecret(t *testing.T) {
	t.Chdir("../../..")
	c := &cluster{folder: t.TempDir(), port: 1, lanes: 1}
	streamtest.Must(t, errors.Join(c.open(), os.WriteFile(c.path("postgres.url"), []byte("postgres://scrip:s3cret@127.0.0.1/scrip"), 0o600)))
	var node, server process.Command
	streamtest.Must(t, errors.Join(c.node(&node, "nats-1", 1), c.server(&server, "scrip-1", 1)))
	args := strings.Join(slices.Concat(node.Args, server.Args), " ")
	for _, secret := range []string{c.password, c.routes, hex.EncodeToString(c.key[:]), "s3cret"} {
		if strings.Contains(args, secret) {
			t.Errorf("an argument has a secret: %s", args)
		}
	}
	streamtest.Must(t, filepath.WalkDir(c.folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	}))
}

// run starts a nats-server that ends with the test.
func run(t *testing.T, o *server.Options, seen *watch) *server.Server {
	t.Helper()
	s, err := server.NewServer(o)
	streamtest.Must(t, err)
	s.SetLogger(seen, true, false)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("a node is not ready")
	}
	return s
}

// joins waits until a node has let the server with this id join, or has refused it.
func joins(t *testing.T, joined, refused *watch, id string, want bool) {
	t.Helper()
	late := time.After(patience)
	for {
		got, line := true, ""
		select {
		case line = <-joined.lines:
			if !strings.Contains(line, id) {
				continue // one more route between others
			}
		case line = <-refused.lines:
			got = false
		case <-late:
			t.Fatal("no attempt to join was seen")
		}
		if got != want {
			t.Errorf("joined: %v, expected %v: %s", got, want, line)
		}
		return
	}
}

// violation is what a nats-server logs that is refused.
const violation = "Authorization Violation"

// watch is a log of a nats-server that passes on the lines with a text.
type watch struct {
	text  string
	lines chan string
}

func watching(text string) *watch { return &watch{text, make(chan string, 100)} }

func (l *watch) see(format string, v []any) {
	if line := fmt.Sprintf(format, v...); strings.Contains(line, l.text) {
		select {
		case l.lines <- line:
		default: // a server that is refused tries again and again
		}
	}
}

func (l *watch) Noticef(format string, v ...any) { l.see(format, v) }
func (l *watch) Warnf(format string, v ...any)   { l.see(format, v) }
func (l *watch) Fatalf(format string, v ...any)  { l.see(format, v) }
func (l *watch) Errorf(format string, v ...any)  { l.see(format, v) }
func (l *watch) Debugf(format string, v ...any)  { l.see(format, v) }
func (l *watch) Tracef(format string, v ...any)  { l.see(format, v) }
