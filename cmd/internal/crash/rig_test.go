package crash

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/check"
	"github.com/seed-4a2410e3/scrip/cmd/internal/scriptest"
	"github.com/seed-4a2410e3/scrip/projections/pgtest"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

func TestMain(m *testing.M) { os.Exit(scriptest.Main(m, nil)) }

// server is a scrip serve process and its data directory.
type server struct {
	t    *testing.T
	data string
	args []string
	env  []string // NAME=value
	log  string
	proc *scriptest.Process
	desc scriptest.Descriptor
}

// newServer prepares a server; up starts it. NATS stays on one port, so that clients find it again.
func newServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{t: t, data: filepath.Join(pgtest.Dir(t), "data"), args: args, log: filepath.Join(t.TempDir(), "serve.log")}
	t.Cleanup(func() {
		if s.proc != nil {
			s.proc.End()
		}
		if t.Failed() {
			t.Logf("the server log:\n%s", tail([]byte(s.output()), 6000))
		}
	})
	return s
}

// newMember prepares a server that shares its log with others, and so is given the log's code key.
func newMember(t *testing.T, args ...string) *server {
	t.Helper()
	s := newServer(t, args...)
	s.env = []string{"SCRIP_CODE_KEY=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
	return s
}

func tail(b []byte, n int) []byte {
	if len(b) > n {
		return b[len(b)-n:]
	}
	return b
}

// up starts the process and waits until it is ready.
func (s *server) up() {
	s.t.Helper()
	var err error
	if s.proc, err = scriptest.Start(s.data, s.log, s.args, s.env); err != nil {
		s.t.Fatal(err)
	}
	if s.desc, err = s.proc.Ready(); err != nil {
		s.t.Fatal(err)
	}
}

// kill is kill -9, and waits until the process is gone.
func (s *server) kill() {
	if s.proc != nil {
		s.proc.Kill()
	}
}

// signal sends a signal.
func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.proc.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// stop sends SIGTERM and returns the exit code.
func (s *server) stop() int {
	s.t.Helper()
	code, err := s.proc.Stop()
	if err != nil {
		s.t.Fatal(err)
	}
	return code
}

func (s *server) connect() (*nats.Conn, jetstream.JetStream) {
	s.t.Helper()
	nc, err := nats.Connect(s.desc.NATSURL, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		s.t.Fatal(err)
	}
	return nc, js
}

// client is an SDK client that lives through restarts.
func (s *server) client() *client.Client {
	s.t.Helper()
	c, err := client.Connect(s.desc.NATSURL, nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// checkLog folds the log, fails the test on broken promises, and compares the tables once they have caught up.
func (s *server) checkLog() *check.Fold {
	s.t.Helper()
	_, js := s.connect()
	return checkLog(s.t, js, s.desc.PostgresURL)
}

func checkLog(t *testing.T, js jetstream.JetStream, postgres string) *check.Fold {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fold, ends, err := scriptest.ReadLog(ctx, js)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range fold.Violations {
		t.Errorf("promise broken: %s", v)
	}
	db, err := pgx.Connect(ctx, postgres)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background()) //nolint:errcheck
	if err := check.CaughtUp(ctx, db, ends); err != nil {
		t.Fatal(err)
	}
	differences, err := fold.Tables(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differences {
		t.Errorf("the tables differ from the log: %s", d)
	}
	return fold
}

// output is the server's log so far.
func (s *server) output() string {
	if s.proc == nil {
		return ""
	}
	return s.proc.Output()
}
