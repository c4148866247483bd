package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-4a2410e3/scrip/streams/link"
)

// DefaultPort is the first port of a cluster; see offsets.
const DefaultPort = 14220

// endpoint is a port that a service listens on in its container.
type endpoint struct {
	service string
	port    int
}

// route is a service that connects, and what to.
type route struct {
	from string
	to   endpoint
}

const (
	natsClients, natsRoutes, natsMonitor = 4222, 6222, 8222
	scripHTTP                            = 8080
	postgresPort                         = 5432
)

// offsets are the ports of a kind in its container, each with its distance from the first port of the cluster. The second
// service of a kind has the next number, and so on. PostgreSQL takes a free port.
var offsets = map[Kind]map[int]int{
	NATS:     {natsClients: 0, natsRoutes: 10, natsMonitor: 20},
	Scrip:    {scripHTTP: 30},
	Postgres: {},
}

// nowhere is advertised by NATS nodes that are reached through links: no connection passes them by.
const nowhere = "127.0.0.1:1"

// layout says where on this machine each port is.
type layout struct {
	services []Service
	known    *regexp.Regexp // HOST:PORT of any service

	mu    sync.Mutex           // guards the fields below
	ports map[endpoint]string  // HOST:PORT on which it listens
	links map[route]*link.Link // nil without links
	// databases are the URLs of PostgreSQL, once it runs: user and password are its own.
	databases map[string]*url.URL
}

// newLayout chooses ports from first on, 0 = free ones.
func newLayout(services []Service, first int, cuttable bool) (*layout, error) {
	l := &layout{services: services, ports: map[endpoint]string{}, databases: map[string]*url.URL{}}
	count, quoted := map[Kind]int{}, []string{}
	for _, s := range services {
		for _, port := range slices.Sorted(maps.Keys(offsets[s.Kind])) {
			chosen := 0
			if first != 0 {
				chosen = first + offsets[s.Kind][port] + count[s.Kind]
			}
			addr, err := reserve(chosen, slices.Collect(maps.Values(l.ports)))
			if err != nil {
				return nil, fmt.Errorf("%s cannot listen on port %d (%w); stop the program there, or choose other ports with -port", s.Name, chosen, err)
			}
			l.ports[endpoint{s.Name, port}] = addr
		}
		count[s.Kind]++
		quoted = append(quoted, regexp.QuoteMeta(s.Name))
	}
	l.known = regexp.MustCompile(`\b(` + strings.Join(quoted, "|") + `):(\d+)\b`)
	if cuttable {
		l.links = map[route]*link.Link{}
	}
	return l, nil
}

// Free ports are chosen between these: below the range from which systems take ports for connections, which would take them
// before a service listens there, and above those of streams/streamtest and of private
// PostgreSQL clusters, whose tests run beside a cluster.
const lowestFree, highestFree = 26000, 32767

// reserve finds out whether a port is free; 0 = any that is not taken. The port is free again when it returns.
func reserve(port int, taken []string) (string, error) {
	if port != 0 {
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return "", err
		}
		return ln.Addr().String(), ln.Close()
	}
	err := errors.New("no port is free")
	for range highestFree - lowestFree {
		var addr string
		if addr, err = reserve(lowestFree+rand.IntN(highestFree-lowestFree), nil); err == nil && !slices.Contains(taken, addr) {
			return addr, nil
		}
	}
	return "", err
}

// reach is where a service reaches an endpoint: the endpoint, or a link to it.
func (l *layout) reach(from string, to endpoint) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	addr := l.ports[to]
	if addr == "" {
		return "", fmt.Errorf("%s does not listen on port %d", to.service, to.port)
	}
	if l.links == nil || from == to.service {
		return addr, nil
	}
	r := route{from, to}
	if l.links[r] == nil {
		made, err := link.Start(addr)
		if err != nil {
			return "", err
		}
		l.links[r] = made
	}
	return l.links[r].Addr(), nil
}

// cut drops all that a service sends and receives, or heals that.
func (l *layout) cut(service string, cut bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.links == nil {
		return errors.New("nothing can be cut off in this cluster; start it with -cut")
	}
	for r, one := range l.links {
		switch {
		case r.from != service && r.to.service != service:
		case cut:
			one.Cut(true, true)
		default:
			one.Heal()
		}
	}
	return nil
}

func (l *layout) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.links {
		one.Close()
	}
}

// translate replaces directories of the container and addresses of services in an argument or variable.
func (l *layout) translate(s Service, text string) (string, error) {
	for _, dir := range slices.SortedFunc(maps.Keys(s.Mounts), func(a, b string) int { return cmp.Compare(len(b), len(a)) }) {
		if text == dir || strings.HasPrefix(text, dir+"/") {
			return s.Mounts[dir] + strings.TrimPrefix(text, dir), nil
		}
	}
	if host, port, err := net.SplitHostPort(text); err == nil && host == "0.0.0.0" {
		number, _ := strconv.Atoi(port)
		return l.reach(s.Name, endpoint{s.Name, number})
	}
	if u, err := url.Parse(text); err == nil && u.Scheme == "postgres" {
		if own := l.database(u.Hostname()); own != nil {
			own.Host, err = l.reach(s.Name, endpoint{u.Hostname(), postgresPort})
			return own.String(), err
		}
	}
	var problem error
	out := l.known.ReplaceAllStringFunc(text, func(one string) string {
		name, port, _ := strings.Cut(one, ":")
		number, _ := strconv.Atoi(port)
		addr, err := l.reach(s.Name, endpoint{name, number})
		problem = errors.Join(problem, err)
		return addr
	})
	return out, problem
}

// own is where a service itself listens.
func (l *layout) own(service string, port int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ports[endpoint{service, port}]
}

// setDatabase records the URL of a PostgreSQL that runs.
func (l *layout) setDatabase(service string, u *url.URL) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ports[endpoint{service, postgresPort}] = u.Host
	l.databases[service] = u
}

// database is a copy of that URL, nil if it has not run.
func (l *layout) database(service string) *url.URL {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.databases[service] == nil {
		return nil
	}
	u := *l.databases[service]
	return &u
}

// inherited are the variables of this process that the services get: no SCRIP_…, which would change what they do.
var inherited = []string{"PATH", "HOME", "TMPDIR", "USER", "LANG", "LC_ALL", "TZ"}

// arguments and environment of a service's process on this machine.
func (l *layout) arguments(s Service) (args []string, err error) {
	for _, arg := range s.Command {
		if arg, err = l.translate(s, arg); err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
	if s.Kind != NATS {
		return args, nil
	}
	// Flags take precedence over the configuration file; these say where on this machine, and nothing else.
	host, port, _ := strings.Cut(l.own(s.Name, natsClients), ":")
	_, monitor, _ := strings.Cut(l.own(s.Name, natsMonitor), ":")
	var routes []string
	for _, other := range l.services {
		if other.Kind != NATS || other.Name == s.Name {
			continue
		}
		addr, err := l.reach(s.Name, endpoint{other.Name, natsRoutes})
		if err != nil {
			return nil, err
		}
		routes = append(routes, "nats://"+addr)
	}
	args = append(args, "--addr", host, "--port", port, "--http_port", monitor,
		"--cluster", "nats://"+l.own(s.Name, natsRoutes), "--routes", strings.Join(routes, ","))
	if l.links != nil {
		args = append(args, "--no_advertise", "--cluster_advertise", nowhere)
	}
	return args, nil
}

func (l *layout) environment(s Service) ([]string, error) {
	var env []string
	for _, name := range inherited {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Environment)) {
		value, err := l.translate(s, s.Environment[name])
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", s.Name, name, err)
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}

// directories makes the directories of named volumes.
func directories(s Service, folder string) error {
	for _, dir := range s.Mounts {
		if filepath.Dir(dir) != folder {
			continue
		}
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	return nil
}
