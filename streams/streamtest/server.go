package streamtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsd"
)

// Server is one embedded server with its own directory and a fixed port.
type Server struct {
	*natsd.Server
	opts natsd.Options
}

// Option changes how Start starts a server.
type Option func(*natsd.Options)

// SyncAlways fsyncs every message. Tests that crash no kernel do not need it.
func SyncAlways(o *natsd.Options) { o.Sync = natsd.SyncAlways }

// Lanes sets the subject mapping.
func Lanes(n int) Option { return func(o *natsd.Options) { o.Lanes = n } }

// Dir uses an existing directory, for example a copy of another server's.
func Dir(dir string) Option { return func(o *natsd.Options) { o.StoreDir = dir } }

// ServersUser and ServersPassword are those of the servers' account of a server with Accounts.
const ServersUser, ServersPassword = "test", "secret"

// Accounts gives the server accounts, the text of package natsauth with ServersUser and ServersPassword. Conn and JetStream
// connect to the servers' account.
func Accounts(text string) Option {
	return func(o *natsd.Options) { o.Username, o.Password, o.Accounts = ServersUser, ServersPassword, text }
}

// Start starts a server on a free loopback port, in a temporary directory, without fsync by default. It is stopped
// when the test ends. Its port stays the same over Restart and Kill, so clients reconnect.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	o := natsd.Options{Listen: "127.0.0.1:" + strconv.Itoa(freePorts(t, 1)[0]), Sync: natsd.SyncInterval, Logger: Logger(t)}
	for _, set := range options {
		set(&o)
	}
	if o.StoreDir == "" {
		o.StoreDir = t.TempDir()
	}
	s := &Server{opts: o}
	s.start(t)
	t.Cleanup(func() { s.Shutdown() })
	return s
}

func (s *Server) start(t testing.TB) {
	t.Helper()
	started, err := natsd.Start(s.opts)
	if err != nil {
		t.Fatalf("starting NATS: %v", err)
	}
	s.Server = started
}

// StoreDir is the directory of the server.
func (s *Server) StoreDir() string { return s.opts.StoreDir }

// Up starts the server again after Shutdown, on the same directory and port.
func (s *Server) Up(t testing.TB) {
	t.Helper()
	s.start(t)
}

// Restart stops the server cleanly and starts it again on the same directory and port.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Shutdown()
	s.start(t)
}

// Kill restarts the server as if it had been killed with SIGKILL: on the files as they are now, before the clean stop
// writes its indexes. Everything acknowledged is in them. Nothing may be published or acknowledged meanwhile: the copy takes
// one file after the other, and may hold an acknowledgement without the message that was stored before it. Where clients
// work on, the server must be a process of its own.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	image := s.CopyStore(t)
	s.Shutdown()
	s.opts.StoreDir = image
	s.start(t)
}

// CopyStore copies the store as it is, which is also how to restore an older log: Start with Dir later.
func (s *Server) CopyStore(t testing.TB) string {
	t.Helper()
	to := t.TempDir()
	if err := copyDir(to, s.opts.StoreDir); err != nil {
		t.Fatalf("copying the store: %v", err)
	}
	return to
}

// RestoreStore stops the server and starts it again, on the same port, with the store copied before by CopyStore.
func (s *Server) RestoreStore(t testing.TB, dir string) {
	t.Helper()
	s.Shutdown()
	s.opts.StoreDir = dir
	s.start(t)
}

// copyDir copies regular files; those that vanish while it runs are left out, as a crash would.
func copyDir(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o600)
	})
}

// Conn connects to the server until the test ends, reconnecting for ever.
func (s *Server) Conn(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	if s.opts.Username != "" {
		opts = append([]nats.Option{nats.UserInfo(s.opts.Username, s.opts.Password)}, opts...)
	}
	return Connect(t, s.ClientURL(), opts...)
}

// JetStream connects to the server until the test ends.
func (s *Server) JetStream(t testing.TB, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	return js(t, s.Conn(t, opts...))
}

// Connect connects until the test ends, reconnecting for ever.
func Connect(t testing.TB, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.RetryOnFailedConnect(true),
		nats.ReconnectJitter(0, 0), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, opts...)
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatalf("connecting to %s: %v", url, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func js(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
