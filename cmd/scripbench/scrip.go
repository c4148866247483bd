package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/check"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// bareRoles leave NATS with idle lanes.
const bareRoles = "lanes"

// scripServer is the real program.
type scripServer struct {
	node
	binary string
	// roles that it has, separated by commas; "" = all. Without the projector it needs no PostgreSQL.
	roles string

	desc datadir.Descriptor
	nc   *nats.Conn
	js   jetstream.JetStream
	sdk  *client.Client
	db   *pgx.Conn
	// key is of role producer, "" = none was made yet.
	key string
	// postmaster is the process of its PostgreSQL, none where there is no /proc.
	postmaster []int
}

// pids are scrip and its PostgreSQL, which is no child of it.
func (s *scripServer) pids() []int { return append(s.node.pids(), s.postmaster...) }

// find finds the program.
func (s *scripServer) find() (err error) {
	name := s.binary
	if name == "" { // beside this program, else on PATH
		self, _ := os.Executable()
		name = filepath.Join(filepath.Dir(self), "scrip")
		if _, err := exec.LookPath(name); err != nil {
			name = "scrip"
		}
	}
	if s.binary, err = exec.LookPath(name); err != nil {
		return fmt.Errorf("the program scrip is missing (%w): run make build, or give its path with --scrip PATH", err)
	}
	return nil
}

func (s *scripServer) start(ctx context.Context) error {
	if err := s.find(); err != nil {
		return err
	}
	args := []string{"serve", "--data", s.data(), "--nats-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--sync", string(s.durability), "--log-level", "warn"}
	within := readyWithin
	if s.roles != "" {
		args = append(args, "--roles", s.roles)
	}
	if s.roles == pendingRoles {
		within = pendingStart
	}
	if s.roles == bareRoles {
		args = append(args, "--insecure") // scrip's own user may make no other streams
	}
	err := s.run(ctx, within, func(p *process.Process) (err error) {
		if s.desc, err = datadir.Find(s.data()); err != nil || s.desc.PID != p.PID() {
			return fmt.Errorf("%w ready: %v", process.ErrWaiting, err)
		}
		return nil
	}, s.binary, args...)
	if err != nil {
		return err
	}
	if s.nc, err = nats.Connect(s.desc.NATSURL, nats.Name("scripbench")); err != nil {
		return err
	}
	if s.js, err = jetstream.New(s.nc); err != nil {
		return err
	}
	s.sdk = client.New(s.nc, client.Options{Timeout: patience})
	if s.desc.PostgresURL != "" {
		if s.db, err = pgx.Connect(ctx, s.desc.PostgresURL); err == nil {
			s.postmaster = process.Parent(int(s.db.PgConn().PID()))
		}
	}
	return err
}

func (s *scripServer) data() string { return filepath.Join(s.dir, "data") }

func (s *scripServer) settings() string {
	switch s.roles {
	case "":
		return fmt.Sprintf("scrip serve --sync %s, %d lanes, all roles, its own PostgreSQL", s.desc.Sync, s.desc.Lanes)
	case bareRoles:
		return fmt.Sprintf("scrip serve --sync %s --roles lanes, idle", s.desc.Sync)
	}
	return fmt.Sprintf("scrip serve --sync %s, %d lanes, --roles %s: no read tables", s.desc.Sync, s.desc.Lanes, s.roles)
}

// settle waits until the read tables have caught up with the log.
func (s *scripServer) settle(ctx context.Context) error {
	if s.db == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	ends, err := s.ends(ctx, topology.EvtStream)
	if err != nil {
		return err
	}
	return check.CaughtUp(ctx, s.db, ends)
}

func (s *scripServer) stop(within time.Duration) {
	if s.sdk != nil {
		s.sdk.Close()
	}
	if s.nc != nil {
		s.nc.Close()
	}
	if s.db != nil {
		_ = s.db.Close(context.Background())
	}
	s.sdk, s.nc, s.db = nil, nil, nil
	s.node.stop(within)
}

// resident is the private memory of the server's own process after garbage collection, in bytes; 0 where there is no
// /proc.
func (s *scripServer) resident(ctx context.Context) (int64, error) {
	for range 2 { // finalizers run after the first
		discard := func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
		if err := s.get(ctx, "/debug/pprof/heap?gc=1", discard); err != nil {
			return 0, err
		}
	}
	private, _ := process.Resident(s.proc.PID())
	return private, nil
}

// metric adds up a metric over its labels.
func (s *scripServer) metric(ctx context.Context, name string) (sum float64, err error) {
	err = s.get(ctx, "/metrics", func(r io.Reader) error {
		text, err := io.ReadAll(r)
		for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{.*\})? (.+)$`).FindAllSubmatch(text, -1) {
			v, bad := strconv.ParseFloat(string(m[1]), 64)
			sum += v
			err = errors.Join(err, bad)
		}
		return err
	})
	return sum, err
}

// get reads what the server has at a path of HTTP.
func (s *scripServer) get(ctx context.Context, path string, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.desc.HTTPURL+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err = errors.New(resp.Status); resp.StatusCode == http.StatusOK {
		err = read(resp.Body)
	}
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
