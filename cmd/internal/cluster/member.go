package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/process"
	"github.com/seed-4a2410e3/scrip/projections/pgd"
)

const (
	// stopLimit is how long a process may take to end after SIGTERM.
	stopLimit = 20 * time.Second
	// healthyLimit is how long a service may take to become healthy: a node that was away catches up first.
	healthyLimit = 3 * time.Minute
	lookEvery    = 100 * time.Millisecond
)

// member is a service with its process.
type member struct {
	Service
	folder string
	layout *layout
	// program is that of the process; unused for PostgreSQL.
	program  string
	postgres *pgd.Cluster // nil for others

	mu      sync.Mutex // guards the fields below
	process *process.Server
	running bool // a process was started, and no command ended it
	paused  bool
	cut     bool
}

func newMember(s Service, l *layout, o Options) *member {
	m := &member{Service: s, folder: o.Folder, layout: l}
	switch s.Kind {
	case NATS:
		m.program = o.NATSServer
	case Scrip:
		m.program = o.Scrip
	case Postgres:
		log := slog.New(slog.NewTextHandler(o.Out, &slog.HandlerOptions{Level: slog.LevelWarn}))
		m.postgres = pgd.Open(pgd.Options{DataDir: filepath.Join(o.Folder, s.Name), StopTimeout: stopLimit, Logger: log})
	}
	return m
}

// log is the file with the output of the process.
func (m *member) log() string {
	if m.postgres != nil && m.postgres.Dir() != "" {
		return filepath.Join(m.postgres.Dir(), "postgres.log")
	}
	return filepath.Join(m.folder, m.Name+".log")
}

func (m *member) pidFile() string { return filepath.Join(m.folder, m.Name+".pid") }

// data is the directory of a scrip server.
func (m *member) data() string { return m.Mounts[m.Environment["SCRIP_DATA"]] }

// start starts the process and does not wait until it is healthy. ended is called when it ends without a command.
func (m *member) start(ctx context.Context, ended func(how string)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running && m.alive() {
		return fmt.Errorf("%s runs already", m.Name)
	}
	if m.postgres != nil {
		return m.startPostgres(ctx, ended)
	}
	if err := m.leftover(); err != nil {
		return err
	}
	if err := directories(m.Service, m.folder); err != nil {
		return err
	}
	args, err := m.layout.arguments(m.Service)
	if err != nil {
		return err
	}
	env, err := m.layout.environment(m.Service)
	if err != nil {
		return err
	}
	p, err := process.Serve(process.Command{Program: m.program, Args: args, Env: env, Log: m.log(), Apart: true}, m.data())
	if err != nil {
		return fmt.Errorf("starting %s: %w", m.Name, err)
	}
	m.process, m.running, m.paused = p, true, false
	go func() {
		how := p.Ended()
		m.mu.Lock()
		unexpected := m.running && m.process == p
		m.mu.Unlock()
		if unexpected {
			ended(how)
		}
	}()
	return os.WriteFile(m.pidFile(), fmt.Appendf(nil, "%d\n%s\n", p.PID(), process.CommandLine(p.PID())), 0o600)
}

// leftover refuses a start beside a process that a runner left when it was killed.
func (m *member) leftover() error {
	raw, err := os.ReadFile(m.pidFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pid, line, _ := strings.Cut(strings.TrimSpace(string(raw)), "\n")
	number := 0
	if _, err := fmt.Sscan(pid, &number); err != nil || line == "" || process.CommandLine(number) != line {
		return nil
	}
	return fmt.Errorf("%s of an earlier start still runs as process %d; end it with: kill %d", m.Name, number, number)
}

// startPostgres starts the private PostgreSQL. It is healthy when this returns.
func (m *member) startPostgres(ctx context.Context, ended func(how string)) error {
	before := m.postgres.URL()
	text, err := m.postgres.Start(ctx)
	if err != nil {
		return fmt.Errorf("starting PostgreSQL: %w", err)
	}
	if before != "" && before != text {
		return errors.New("PostgreSQL had to move to another port, which the scrip servers do not know; stop the cluster and start it again")
	}
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	m.layout.setDatabase(m.Name, u)
	m.running, m.paused = true, false
	pid := m.postgres.PID()
	go func() {
		unexpected := false
		_ = await(context.Background(), func() (bool, error) { // it does not fail
			m.mu.Lock()
			defer m.mu.Unlock()
			unexpected = m.running && m.postgres.PID() != pid
			return unexpected || !m.running, nil
		})
		if unexpected {
			ended(fmt.Sprintf("process %d is gone", pid))
		}
	}()
	return nil
}

// alive is true while the process exists. m.mu is held.
func (m *member) alive() bool {
	if m.postgres != nil {
		return m.postgres.PID() != 0
	}
	return m.process != nil && m.process.Alive()
}

// pid of the process, 0 if there is none. m.mu is held.
func (m *member) pid() int {
	switch {
	case m.postgres != nil:
		return m.postgres.PID()
	case m.alive():
		return m.process.PID()
	}
	return 0
}

// signal sends a signal to the process; PostgreSQL's descendants get it too.
func (m *member) signal(sig syscall.Signal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	pid := m.pid()
	if pid == 0 {
		return fmt.Errorf("%s does not run; start it with: start %s", m.Name, m.Name)
	}
	m.paused = sig == syscall.SIGSTOP
	return process.SignalFamily(pid, sig)
}

// kill ends the process as kill -9 does, and waits until it is gone.
func (m *member) kill(ctx context.Context) error {
	if err := m.signal(syscall.SIGKILL); err != nil {
		return err
	}
	return await(ctx, func() (bool, error) { return m.state() == down, nil })
}

// await looks until it is done or fails.
func await(ctx context.Context, look func() (done bool, err error)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stop ends the process in order.
func (m *member) stop() error {
	m.mu.Lock()
	m.running = false
	p, paused := m.process, m.paused
	m.mu.Unlock()
	if m.postgres != nil {
		if pid := m.postgres.PID(); paused && pid != 0 {
			_ = process.SignalFamily(pid, syscall.SIGCONT) // it may have ended
		}
		return m.postgres.Stop(context.Background())
	}
	if p == nil {
		return nil
	}
	if err := p.StopWithin(stopLimit); err != nil {
		return fmt.Errorf("%s %w", m.Name, err)
	}
	return nil
}

// awaitHealthy waits until the service is healthy, or has ended.
func (m *member) awaitHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthyLimit)
	defer cancel()
	err := await(ctx, func() (bool, error) {
		m.mu.Lock()
		alive, p := m.alive(), m.process
		m.mu.Unlock()
		if !alive {
			return false, errors.New("it ended")
		}
		return m.healthy(ctx, p), nil
	})
	if err != nil {
		return fmt.Errorf("%s is not healthy; see %s: %w", m.Name, m.log(), err)
	}
	return nil
}

// healthy looks once: a node as the compose file does, a scrip server is healthy once it has published its addresses.
func (m *member) healthy(ctx context.Context, p *process.Server) bool {
	switch m.Kind {
	case Postgres:
		return true
	case Scrip:
		d, err := p.Descriptor()
		return err == nil && d.PID == p.PID()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.layout.own(m.Name, natsMonitor)+"/healthz", nil)
	if err != nil {
		return false
	}
	resp, err := (&http.Client{Timeout: 2 * time.Second}).Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// down is the state of a service without a process.
const down = "down"

// state describes the member in a word.
func (m *member) state() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.alive():
		return down
	case m.paused:
		return "paused"
	case m.cut:
		return "cut off"
	}
	return "up"
}
