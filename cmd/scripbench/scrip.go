package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/check"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/projections/pgd"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// scripServer is the real program with all its roles; if bare, only its NATS is used, and its lanes stay idle.
type scripServer struct {
	binary string
	bare   bool
	// roles that it has, separated by commas; "" = all. Without the projector it needs no PostgreSQL.
	roles string
	// within is how long it may take to become ready; 0 = readyWithin.
	within time.Duration

	dir  string
	proc *process
	desc datadir.Descriptor
	nc   *nats.Conn
	js   jetstream.JetStream
	sdk  *client.Client
	db   *pgx.Conn
	// postmaster is the process of its PostgreSQL, none where there is no /proc.
	postmaster []int
}

// findScrip searches the program at the given path, else beside this one, else on PATH.
func findScrip(given string) (string, error) {
	if given != "" {
		return exec.LookPath(given)
	}
	if self, err := os.Executable(); err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), "scrip")); err == nil {
			return beside, nil
		}
	}
	return exec.LookPath("scrip")
}

func (s *scripServer) missing() error {
	binary, err := findScrip(s.binary)
	if err != nil {
		return fmt.Errorf("the program scrip is missing (%w): run make build, or give its path with --scrip PATH", err)
	}
	s.binary = binary
	if !s.bare && s.roles == "" {
		_, err = pgd.Find() // for the read tables
	}
	return err
}

func (s *scripServer) start(ctx context.Context, dir string, d durability) error {
	s.dir = dir
	args := []string{"serve", "--data", s.data(), "--nats-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--sync", string(d), "--log-level", "warn"}
	switch {
	case s.bare:
		args = append(args, "--roles", "lanes")
	case s.roles != "":
		args = append(args, "--roles", s.roles)
	}
	var err error
	if s.proc, err = startProcess(filepath.Join(dir, "log"), s.binary, args...); err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, max(readyWithin, s.within))
	defer cancel()
	err = poll(ready, s.proc, readyEvery, func() (err error) {
		if s.desc, err = datadir.Find(s.data()); err != nil || s.desc.PID != s.proc.pid() {
			return fmt.Errorf("%w ready: %v", errWaiting, err)
		}
		return nil
	})
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
			s.postmaster = parentOf(int(s.db.PgConn().PID()))
		}
	}
	return err
}

func (s *scripServer) data() string { return filepath.Join(s.dir, "data") }

func (s *scripServer) settings() string {
	switch {
	case s.bare:
		return fmt.Sprintf("scrip serve --sync %s --roles lanes, idle", s.desc.Sync)
	case s.roles != "":
		return fmt.Sprintf("scrip serve --sync %s, %d lanes, --roles %s: no read tables", s.desc.Sync, s.desc.Lanes, s.roles)
	}
	return fmt.Sprintf("scrip serve --sync %s, %d lanes, all roles, its own PostgreSQL", s.desc.Sync, s.desc.Lanes)
}

// pids are scrip and its PostgreSQL, which is no child of it.
func (s *scripServer) pids() []int { return append([]int{s.proc.pid()}, s.postmaster...) }

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

func (s *scripServer) stop() {
	s.disconnect()
	if s.proc != nil {
		s.proc.stop(stopWithin)
	}
}

func (s *scripServer) disconnect() {
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
}

// restart ends the server, cleanly within the given time or, for 0, by SIGKILL, runs between, which may be nil, and
// starts it on the same directory. It returns how many seconds ending took, when it was started, and how many seconds
// passed until it was ready.
func (s *scripServer) restart(ctx context.Context, d durability, within time.Duration, between func() error) (ending float64, began time.Time, ready float64, err error) {
	began = time.Now()
	s.disconnect()
	if within > 0 {
		s.proc.stop(within)
	} else {
		s.proc.kill()
	}
	ending = time.Since(began).Seconds()
	if between != nil {
		if err := between(); err != nil {
			return 0, began, 0, err
		}
	}
	began = time.Now()
	err = s.start(ctx, s.dir, d)
	return ending, began, time.Since(began).Seconds(), err
}

// resident is the private memory of the server's own process after garbage collection, in bytes; 0 where there is no
// /proc.
func (s *scripServer) resident(ctx context.Context) (int64, error) {
	for range 2 { // finalizers run after the first
		body, err := s.http(ctx, "/debug/pprof/heap?gc=1")
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, body)
		if err = errors.Join(err, body.Close()); err != nil {
			return 0, err
		}
	}
	private, _, _ := resident(s.proc.pid())
	return private, nil
}

// metric adds up a metric over its labels.
func (s *scripServer) metric(ctx context.Context, name string) (sum float64, err error) {
	byLane, err := s.metricByLane(ctx, name)
	for _, v := range byLane {
		sum += v
	}
	return sum, err
}

// metricByLane adds up a metric over its labels except the lane.
func (s *scripServer) metricByLane(ctx context.Context, name string) (map[string]float64, error) {
	body, err := s.http(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	byLane := map[string]float64{}
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), name+"{"); ok {
			var v float64
			labels, value, _ := strings.Cut(rest, "} ")
			if _, err := fmt.Sscan(value, &v); err != nil {
				return nil, fmt.Errorf("metric %s: %w", name, err)
			}
			_, lane, _ := strings.Cut(labels, `lane="`)
			lane, _, _ = strings.Cut(lane, `"`)
			byLane[lane] += v
		}
	}
	return byLane, lines.Err()
}

func (s *scripServer) http(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.desc.HTTPURL+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s: %s", path, resp.Status), resp.Body.Close())
	}
	return resp.Body, nil
}
