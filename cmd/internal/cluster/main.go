// Command cluster runs three NATS nodes, PostgreSQL and three servers of scrip as processes on one machine; see `make cluster`.
//
//	cluster                start all; Ctrl-C stops all
//	cluster status         what runs, and where to reach it
//	cluster kill nats-2    also start and stop, and other services
//
//	docker/nats/cluster.conf ───────────────────────> nats-server ×3 ──┐
//	<folder>/code.key ── passwords follow from it ──> scrip serve ×3 ──┼── a process group of its own each
//	projections/pgd ────────────────────────────────> PostgreSQL ──────┘
//
//	<folder>/code.key, layout    made at the first start, 0600; port and lanes of the last one
//	<folder>/nats                configuration of the nodes, with the accounts of the lanes
//	<folder>/<service>           its data
//	<folder>/<service>.log, .pid its output; its process and what it runs
//
// The layout is fixed, and every command reads the same files: there is no program that it would have to reach.
//
// Owner: the terminal of the first command. If it is killed, the services go on; the next start refuses to run beside them and
// names them. Data is what the services stored: a second start continues the log.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/process"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/projections/pgd"
	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// stages are the services in the order in which they start, each stage when the one before is healthy. The first server of
// scrip makes the log; the others find it.
var stages = [][]string{{"nats-1", "nats-2", "nats-3"}, {"postgres"}, {"scrip-1"}, {"scrip-2", "scrip-3"}}

var services = slices.Concat(stages...)

const (
	// Distances from the first port, that of the clients of nats-1.
	routesPort, monitorPort, httpPort, postgresPort = 10, 20, 30, 40
	// stopLimit is how long a process may take to end after SIGTERM, healthyLimit how long a service may take to become
	// healthy: a node that was away catches up first.
	stopLimit, healthyLimit = 20 * time.Second, 3 * time.Minute
	lookEvery               = 100 * time.Millisecond
)

// cluster is where the services are.
type cluster struct {
	folder      string
	programs    string // the folder with scrip and nats-server, beside this program
	port, lanes int
	key         [32]byte // the code key
	password    string   // of all users, follows from the key, as does:
	routes      string   // the password that the nodes require of each other
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c cluster
	flag.StringVar(&c.folder, "data", "./cluster", "the `folder` of all data")
	flag.IntVar(&c.port, "port", 14220, "first port: NATS from it on, its routes 10, its HTTP 20, scrip's HTTP 30 and PostgreSQL 40 higher")
	flag.IntVar(&c.lanes, "lanes", 16, "lanes of the log, which never change once it exists")
	flag.Parse()
	err := c.open()
	if err == nil {
		err = c.do(ctx, flag.Arg(0), flag.Arg(1))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func (c *cluster) do(ctx context.Context, verb, name string) error {
	if raw, err := os.ReadFile(c.path("layout")); verb != "" && err == nil {
		_, _ = fmt.Sscan(string(raw), &c.port, &c.lanes) // of the start
	}
	switch {
	case verb == "":
		return c.serve(ctx)
	case verb == "status":
		return c.status()
	case !slices.Contains([]string{"start", "stop", "kill"}, verb):
		return fmt.Errorf("%q is no command; the commands are status, and start, stop, kill with the name of a service, such as: kill nats-2", verb)
	case !slices.Contains(services, name):
		return fmt.Errorf("%q is no service; the services are %s", name, strings.Join(services, ", "))
	case verb == "start":
		return c.stage(ctx, []string{name})
	case verb == "stop":
		return c.stop(ctx, name)
	}
	return c.kill(ctx, name)
}

// open reads the code key, which the first start makes: with another one scrip refuses the log.
func (c *cluster) open() (err error) {
	self, err := os.Executable()
	c.programs = filepath.Dir(self)
	if err == nil {
		c.folder, err = filepath.Abs(c.folder)
	}
	if err != nil {
		return err
	}
	path := filepath.Join(c.folder, "code.key")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, _ = rand.Read(c.key[:]) // never fails
		raw = []byte(hex.EncodeToString(c.key[:]))
		err = errors.Join(atomicfile.MkdirAll(c.folder, 0o711), atomicfile.Create(path, raw, 0o600))
	}
	if err == nil {
		c.key, err = code.ParseKey(string(raw))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	sum := sha256.Sum256(c.key[:])
	c.password = hex.EncodeToString(sum[:16])
	c.routes, err = natsauth.RoutesPassword(c.key)
	return err
}

// serve starts all services and stops them when ctx ends.
func (c *cluster) serve(ctx context.Context) (err error) {
	for _, name := range services {
		if pid := c.process(name); pid != 0 {
			return fmt.Errorf("%s runs already on %s, as process %d; end it with: stop %s, or give another folder with -data", name, c.folder, pid, name)
		}
	}
	err = os.WriteFile(c.path("layout"), fmt.Appendln(nil, c.port, c.lanes), 0o600)
	for i := 0; i < len(stages) && err == nil; i++ {
		if stages[i][0] != "postgres" {
			err = c.stage(ctx, stages[i])
			continue
		}
		// In a process of its own, as the one that starts PostgreSQL has its lock until it ends: a later start could not adopt it.
		own := exec.CommandContext(ctx, os.Args[0], "-data", c.folder, "start", "postgres")
		own.Stdout, own.Stderr = os.Stdout, os.Stderr
		err = own.Run()
	}
	if err == nil {
		_ = c.status() // a terminal that is gone does not stop the services
		fmt.Printf("\nready. In another terminal: %s/scrip status --data %s\nCtrl-C stops all. A fault to try: %s -data %s kill nats-2, and later start nats-2\n",
			c.programs, c.path("scrip-1"), os.Args[0], c.folder)
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		err = nil // stopped by the user, perhaps during the start
		fmt.Println("stopping")
	}
	for _, name := range slices.Backward(services) {
		err = errors.Join(err, c.stop(context.Background(), name))
	}
	return err
}

// stage starts services and waits until they are healthy.
func (c *cluster) stage(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := c.start(ctx, name); err != nil {
			return fmt.Errorf("starting %s: %w", name, err)
		}
	}
	for _, name := range names {
		err := await(ctx, healthyLimit, func() bool { return c.healthy(name) || c.process(name) == 0 })
		if err != nil || c.process(name) == 0 {
			return fmt.Errorf("%s is not healthy, or has ended; see %s", name, c.path(name+".log"))
		}
	}
	return nil
}

// status writes a table of all services: process, and where to reach it.
func (c *cluster) status() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tSTATE\tPID\tREACH IT")
	for _, name := range services {
		pid, where := c.process(name), c.path(name)
		switch kind, i := parts(name); kind {
		case "nats":
			where = fmt.Sprintf("nats://%s, http://%s", c.at(0, i), c.at(monitorPort, i))
		case "scrip":
			where = fmt.Sprintf("http://%s, --data %s", c.at(httpPort, i), where)
		}
		state := "up"
		if pid == 0 {
			state = "down"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", name, state, pid, where)
	}
	return w.Flush()
}

// parts are the kind of a service and its number; PostgreSQL has none.
func parts(name string) (kind string, i int) {
	kind, number, _ := strings.Cut(name, "-")
	i, _ = strconv.Atoi(number)
	return kind, i
}

func (c *cluster) path(name string) string { return filepath.Join(c.folder, name) }

// at is an address of service number i of its kind.
func (c *cluster) at(distance, i int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port+distance+i-1))
}

// start starts a service and does not wait until it is healthy. PostgreSQL is adopted by the next program that wants it.
func (c *cluster) start(ctx context.Context, name string) error {
	if pid := c.process(name); pid != 0 {
		return fmt.Errorf("it runs already, as process %d", pid)
	}
	pid := 0
	if kind, i := parts(name); kind == "postgres" {
		db := pgd.Open(pgd.Options{DataDir: c.path(name), Port: c.port + postgresPort, Logger: slog.New(slog.DiscardHandler)})
		url, err := db.Start(ctx)
		if err == nil {
			err = os.WriteFile(c.path("postgres.url"), []byte(url), 0o600)
		}
		if err != nil {
			return err
		}
		pid = db.PID()
	} else {
		command := process.Command{Log: c.path(name + ".log"), Apart: true}
		command.Env = slices.DeleteFunc(os.Environ(), func(one string) bool { return strings.HasPrefix(one, "SCRIP_") || strings.HasPrefix(one, "NATS_") })
		describe := c.node
		if kind == "scrip" {
			describe = c.server
		}
		if err := describe(&command, name, i); err != nil {
			return err
		}
		p, err := process.Start(command)
		if err != nil {
			return err
		}
		pid = p.PID()
	}
	// What it runs is remembered, too: the number may be another's later.
	return os.WriteFile(c.path(name+".pid"), fmt.Appendf(nil, "%d\n%s", pid, commandLine(pid)), 0o600)
}

// node is a NATS node with docker/nats/cluster.conf, on addresses of its own. No secret is an argument, which other users see.
func (c *cluster) node(command *process.Command, name string, i int) error {
	config := c.path("nats/" + name + ".conf")
	text, err := os.ReadFile("docker/nats/cluster.conf")
	if err == nil {
		text, err = c.placed(text, i)
	}
	issuer, bad := callout.IssuerOf(c.key)
	if err = errors.Join(err, bad); err != nil {
		return err
	}
	command.Program, command.Args = filepath.Join(c.programs, "nats-server"), []string{"--config", config}
	command.Env = append(command.Env, "NATS_NODE="+name, "NATS_STORE="+c.path(name), "NATS_USER=scrip", "NATS_PASSWORD="+c.password,
		natsauth.IssuerVariable+"="+issuer.Public(), natsauth.RoutesPasswordVariable+"="+c.routes,
		natsauth.RoutesVariable+"="+natsauth.Routes(c.routes, c.at(routesPort, 1), c.at(routesPort, 2), c.at(routesPort, 3)))
	return errors.Join(atomicfile.MkdirAll(filepath.Dir(config), 0o711), os.WriteFile(config, text, 0o600),
		os.WriteFile(c.path("nats/accounts.conf"), []byte(natsauth.File(c.lanes)), 0o600))
}

// placed is the configuration of a node with the addresses of node i on this machine. They are not given as flags: --cluster
// without a password removes the one of the file.
func (c *cluster) placed(config []byte, i int) ([]byte, error) {
	for _, listener := range []struct{ line, address string }{
		{"\nlisten: 0.0.0.0:4222\n", c.at(0, i)},
		{"\nhttp: 127.0.0.1:8222\n", c.at(monitorPort, i)},
		{"\n  listen: 0.0.0.0:6222\n", c.at(routesPort, i)},
	} {
		if bytes.Count(config, []byte(listener.line)) != 1 {
			return nil, fmt.Errorf("docker/nats/cluster.conf does not have the line %q once", strings.TrimSpace(listener.line))
		}
		setting, _, _ := strings.Cut(listener.line, ":")
		config = bytes.Replace(config, []byte(listener.line), []byte(setting+": "+listener.address+"\n"), 1)
	}
	return config, nil
}

// server is a server of scrip, as in docker/compose.cluster.yaml.
func (c *cluster) server(command *process.Command, name string, i int) error {
	var nodes []string
	for node := range 3 {
		nodes = append(nodes, fmt.Sprintf("nats://scrip:%s@%s", c.password, c.at(0, node+1)))
	}
	url, err := os.ReadFile(c.path("postgres.url"))
	command.Program, command.Args = filepath.Join(c.programs, "scrip"), []string{"serve"}
	command.Env = append(command.Env, "SCRIP_DATA="+c.path(name), "SCRIP_NATS="+strings.Join(nodes, ","), "SCRIP_REPLICAS=3", fmt.Sprint("SCRIP_LANES=", c.lanes),
		"SCRIP_POSTGRES="+string(url), "SCRIP_CODE_KEY="+hex.EncodeToString(c.key[:]), "SCRIP_CREDENTIALS=scrip:"+c.password,
		"SCRIP_HTTP_LISTEN="+c.at(httpPort, i), "SCRIP_LOG_FORMAT=json")
	return err
}

// healthy looks once: a node as the compose file does. PostgreSQL is healthy when it has been started.
func (c *cluster) healthy(name string) bool {
	kind, i := parts(name)
	url := "http://" + c.at(monitorPort, i) + "/healthz"
	switch kind {
	case "postgres":
		return true
	case "scrip":
		url = "http://" + c.at(httpPort, i) + "/readyz"
	}
	resp, err := (&http.Client{Timeout: 2 * time.Second}).Get(url)
	return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// process is the process of a service, 0 if there is none.
func (c *cluster) process(name string) int {
	raw, _ := os.ReadFile(c.path(name + ".pid"))
	number, line, _ := strings.Cut(string(raw), "\n")
	pid, _ := strconv.Atoi(number)
	if line == "" || commandLine(pid) != line {
		return 0
	}
	return pid
}

// commandLine of a process as ps has it; "" or another one if it has ended.
func commandLine(pid int) string {
	out, _ := exec.Command("ps", "-p", strconv.Itoa(pid), "-o", "args=").Output()
	return strings.TrimSpace(string(out))
}

// kill is kill -9 of the process and its descendants, which PostgreSQL has.
func (c *cluster) kill(ctx context.Context, name string) error {
	pid := c.process(name)
	if pid == 0 {
		return fmt.Errorf("%s does not run; start it with: start %s", name, name)
	}
	if err := process.SignalFamily(pid, syscall.SIGKILL); err != nil {
		return err
	}
	return await(ctx, stopLimit, func() bool { return c.process(name) == 0 })
}

// stop ends a service in order, or kills it when that takes too long. One that does not run is no error.
func (c *cluster) stop(ctx context.Context, name string) error {
	pid, sig := c.process(name), syscall.SIGTERM
	if pid == 0 {
		return nil
	}
	if name == "postgres" {
		sig = syscall.SIGINT // a fast shutdown, which cuts connections
	}
	_ = syscall.Kill(pid, sig) // it may have ended
	if await(ctx, stopLimit, func() bool { return c.process(name) == 0 }) != nil {
		return errors.Join(fmt.Errorf("%s did not end within %s and was killed", name, stopLimit), c.kill(ctx, name))
	}
	return nil
}

func await(ctx context.Context, within time.Duration, fact func() bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for err == nil && !fact() {
		err = natsx.Pause(ctx, lookEvery)
	}
	return err
}
