package e2e

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/check"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// MemberKey is the variable with the code key of servers that share a log.
const MemberKey = "SCRIP_CODE_KEY=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// shownLog is how many bytes of the end of a server's log a failed test shows.
const shownLog = 8000

// logged is how long Logs waits, far longer than a machine under load needs.
const logged = 3 * time.Minute

// Server is a `scrip serve` that a test starts again and again on one data directory. Its fields but Process and Desc
// may be changed before a start. When the test ends it is killed, with its PostgreSQL, and the end of its log is shown if the test
// failed.
type Server struct {
	*Process             // the newest one, nil before the first start
	Desc      Descriptor // of the newest one that was ready
	Data      string
	Args, Env []string // Env has NAME=value

	t   testing.TB
	log string
}

// NewServer prepares a server with a data directory of its own, which other users can reach.
func NewServer(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, Data: filepath.Join(projtest.Dir(t), "data"), Args: args, log: filepath.Join(t.TempDir(), "serve.log")}
	t.Cleanup(func() {
		if s.Process == nil {
			return
		}
		s.End()
		if out := s.Output(); t.Failed() {
			t.Logf("the log of %s ends:\n%s", s.Data, out[max(0, len(out)-shownLog):])
		}
	})
	return s
}

// NewMember prepares a server that shares its log with others: all of them have the same code key.
func NewMember(t testing.TB, args ...string) *Server {
	t.Helper()
	s := NewServer(t, args...)
	s.Env = []string{MemberKey}
	return s
}

// Launch starts the server and does not wait until it is ready.
func (s *Server) Launch() {
	s.t.Helper()
	p, err := Start(s.Data, s.log, s.Args, s.Env)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Process = p
}

// Up starts the server and waits until it is ready.
func (s *Server) Up() {
	s.t.Helper()
	s.Launch()
	s.Ready()
}

// Ready waits until the server is ready.
func (s *Server) Ready() Descriptor {
	s.t.Helper()
	var err error
	if s.Desc, err = s.Process.Ready(); err != nil {
		s.t.Fatal(err)
	}
	return s.Desc
}

// Logs waits until the server has logged one of the texts, and fails the test if it ends before.
func (s *Server) Logs(texts ...string) {
	s.t.Helper()
	if err := s.Process.Logs(logged, texts...); err != nil {
		s.t.Fatal(err)
	}
}

// Signal sends a signal.
func (s *Server) Signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Stop sends SIGTERM, waits for the end and returns the exit code.
func (s *Server) Stop() int {
	s.t.Helper()
	code, err := s.Process.Stop()
	if err != nil {
		s.t.Fatal(err)
	}
	return code
}

// Client returns an SDK client that lives through restarts, if the server's NATS stays on one port.
func (s *Server) Client() *client.Client {
	s.t.Helper()
	c, err := client.Connect(s.Desc.NATSURL, nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// CheckLog is CheckLog for the log and the tables that the server uses.
func (s *Server) CheckLog() *check.Fold {
	s.t.Helper()
	nc, err := nats.Connect(s.Desc.NATSURL)
	if err != nil {
		s.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		s.t.Fatal(err)
	}
	return CheckLog(s.t, js, s.Desc.PostgresURL)
}

// CheckLog folds the log, fails the test on broken promises, and compares the tables once they have caught up.
func CheckLog(t testing.TB, js jetstream.JetStream, postgres string) *check.Fold {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	fold, ends, err := ReadLog(ctx, js)
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

// Writers returns by lane which tenure of which server wrote its newest event, "" where there is none.
func Writers(t testing.TB, js jetstream.JetStream, lanes int) []string {
	t.Helper()
	list := make([]string, lanes)
	for lane := range lanes {
		tail, err := eventlog.Events(js, lane).Tail(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if tail.Message != nil {
			list[lane] = tail.Message.Owner
		}
	}
	return list
}
