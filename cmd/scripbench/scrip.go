package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

const (
	readyWithin = time.Minute
	readyEvery  = 20 * time.Millisecond
	// settleWithin is how long the read tables may take to catch up.
	settleWithin = 10 * time.Minute
)

// scripServer is the real program with all its roles; bare, it is asked for its NATS only, and its lanes stay idle.
type scripServer struct {
	binary string
	bare   bool
	// roles that it has, with commas between; "" = all. Without the projector it needs no PostgreSQL.
	roles string
	// within is how long it may take to become ready; 0 = readyWithin.
	within time.Duration

	proc *process
	desc datadir.Descriptor
	nc   *nats.Conn
	js   jetstream.JetStream
	sdk  *client.Client
	db   *pgx.Conn
}

// findScrip is where the program is: as the caller says, beside this one, or on PATH.
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
		return fmt.Errorf("the program scrip is missing (%w): make build, or say where it is with --scrip PATH", err)
	}
	s.binary = binary
	if !s.bare && s.roles == "" {
		_, err = pgd.Find() // for the read tables
	}
	return err
}

func (s *scripServer) start(ctx context.Context, dir string, d durability) error {
	data := filepath.Join(dir, "data")
	args := []string{"serve", "--data", data, "--nats-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--sync", string(d), "--log-level", "warn"}
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
	if err := s.ready(ctx, data); err != nil {
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
		s.db, err = pgx.Connect(ctx, s.desc.PostgresURL)
	}
	return err
}

// ready waits until the server says where it is.
func (s *scripServer) ready(ctx context.Context, data string) error {
	ctx, cancel := context.WithTimeout(ctx, max(readyWithin, s.within))
	defer cancel()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		var err error
		if s.desc, err = datadir.Find(data); err == nil && s.desc.PID == s.proc.pid() {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.proc.gone:
			return s.proc.died()
		case <-ctx.Done():
			return errors.Join(errors.New("it does not become ready"), err, ctx.Err())
		}
	}
}

func (s *scripServer) settings() string {
	if s.bare {
		return fmt.Sprintf("scrip serve --sync %s --roles lanes, idle", s.desc.Sync)
	}
	if s.roles != "" {
		return fmt.Sprintf("scrip serve --sync %s, %d lanes, --roles %s: no read tables", s.desc.Sync, s.desc.Lanes, s.roles)
	}
	return fmt.Sprintf("scrip serve --sync %s, %d lanes, all roles, its own PostgreSQL", s.desc.Sync, s.desc.Lanes)
}

func (s *scripServer) pid() int { return s.proc.pid() }

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
	return check.Caught(ctx, s.db, ends)
}

func (s *scripServer) stop() {
	s.hangUp()
	if s.proc != nil {
		s.proc.stop(stopWithin)
	}
}

// hangUp closes our connections.
func (s *scripServer) hangUp() {
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
