package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

const (
	// DefaultHTTPListen is the default address of health and metrics.
	DefaultHTTPListen = "127.0.0.1:8080"
	// DefaultExternalLanes is the number of lanes of a new log on an external NATS: enough to spread over machines later.
	DefaultExternalLanes = 16
)

// Role is a part of the work that a server does; several servers can share the roles of a log.
type Role string

// The roles.
const (
	RoleLanes     Role = "lanes"     // decides commands
	RoleScheduler Role = "scheduler" // expires and reminds, for the lanes that this server owns
	RoleProjector Role = "projector" // fills the read tables
	RoleAPI       Role = "api"       // answers requests
)

// AllRoles are the roles of a server that runs alone.
var AllRoles = []Role{RoleLanes, RoleScheduler, RoleProjector, RoleAPI}

// ParseRoles reads a list such as "lanes,scheduler".
func ParseRoles(s string) ([]Role, error) {
	var roles []Role
	for name := range strings.SplitSeq(s, ",") {
		role := Role(strings.TrimSpace(name))
		if !slices.Contains(AllRoles, role) {
			return nil, fmt.Errorf("%q is not a role; give some of lanes,scheduler,projector,api", name)
		}
		if !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	return roles, nil
}

// Options of a server. Data is required.
type Options struct {
	// Data is the data directory.
	Data string
	// NATS is the URL of an external server; "" = embedded.
	NATS string
	// Postgres is the URL of an external server; "" = a private cluster.
	Postgres string
	// PostgresListen is HOST:PORT of the private PostgreSQL, port 0 = the one that is kept; "" = 127.0.0.1:0. A loopback HOST is 127.0.0.1.
	PostgresListen string
	// TablesDir is the directory of the private PostgreSQL; "" = in the data directory.
	TablesDir string
	// Roles defaults to AllRoles.
	Roles []Role
	// NATSListen is HOST:PORT of the embedded NATS server. Defaults to natsd.DefaultListen.
	NATSListen string
	// NATSConnections and NATSPending, in MiB, are natsd.Options.Connections and Pending; 0 = their defaults.
	NATSConnections, NATSPending int
	// HTTPListen is HOST:PORT. Defaults to DefaultHTTPListen.
	HTTPListen string
	// HTTPHosts are allowed host names of HTTP requests, besides localhost, any address, and the host of HTTPListen.
	HTTPHosts []string
	// HTTPProxies are the networks of proxies in front of HTTP, whose X-Forwarded-For is believed.
	HTTPProxies web.Proxies
	// HTTPConns bounds the open connections of HTTP, and HTTPConnsPerAddress those of one client address. Defaults as in
	// web.NewConns.
	HTTPConns, HTTPConnsPerAddress int
	// HTTPPrefix is what paths start with where a proxy serves them, such as /coupons; "" = nothing.
	HTTPPrefix string
	// NoConsole: there are no pages.
	NoConsole bool
	// Lanes of a new log; 0 = the log's own, or the default for a new one.
	Lanes int
	// Replicas of every stream; 0 = 1.
	Replicas int
	// Sync is natsd.SyncAlways or SyncInterval, for the embedded server; "" = always.
	Sync string
	// Insecure disables credentials of the embedded NATS if none are given, and allows it to listen beyond loopback
	// without them.
	Insecure bool
	// Credentials is USER:PASSWORD, required of NATS clients, for /metrics, and for guarded HTTP paths. Defaults to those
	// in the data directory, which are not required for /metrics.
	Credentials string
	// TLSCert and TLSKey are files in PEM, for HTTP and the embedded NATS server; "" = no TLS.
	TLSCert, TLSKey string
	// NATSOptions are added to every connection to NATS: credentials, and the CA of an external server. NATSCA is the file of that
	// CA for clients on this machine, an absolute path; "" = those of the system.
	NATSOptions []nats.Option
	NATSCA      string
	// OpsListen is HOST:PORT of a listener of its own for metrics, profiles and the details of readiness, without credentials
	// on loopback; "" = none.
	OpsListen string
	// CodeKey is the code key in hex; "" = that of the file.
	CodeKey string
	// SealKey checks seals on a server without lanes that has no code key, see datadir.Unlock; "" = none.
	SealKey string
	// ReminderGrace is how late a reminder may still fire although what it announces has passed. Defaults to wire.DefaultReminderGrace.
	ReminderGrace time.Duration
	// Rebase has the lanes to rebase, whose command stream does not continue where their events end, each with the command
	// sequence to continue at (0 = after the stream's last message).
	Rebase map[int]uint64
	// Skip are messages to add to the skip list.
	Skip []Skip
	// WebhookAllow are networks inside to which webhooks may go, on any port. WebhookHTTP allows http and port 80.
	WebhookAllow []netip.Prefix
	WebhookHTTP  bool
	// Backups is the directory in which backups are taken; "" = backups, below Data.
	Backups string
	// Clock is the machine's clocks. Defaults to the real ones; its Tolerance is always that of the run-time settings.
	Clock wall.Options
	// Version of the program, for metrics.
	Version string
	// Logger defaults to slog.Default.
	Logger *slog.Logger
	// LinesDropped is how many lines of the log were lost; nil = the log counts none, and there is no metric.
	LinesDropped func() uint64
}

func (o Options) withDefaults() Options {
	if len(o.Roles) == 0 {
		o.Roles = AllRoles
	}
	if o.NATSListen == "" {
		o.NATSListen = natsd.DefaultListen
	}
	if o.HTTPListen == "" {
		o.HTTPListen = DefaultHTTPListen
	}
	if o.Sync == "" && o.NATS == "" {
		o.Sync = natsd.SyncAlways
	}
	if o.ReminderGrace == 0 {
		o.ReminderGrace = wire.DefaultReminderGrace
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

func (o Options) has(r Role) bool { return slices.Contains(o.Roles, r) }

// prefixForm is that of HTTPPrefix, and noPrefix what has its own meaning without one.
var (
	prefixForm = regexp.MustCompile(`^(/[A-Za-z0-9_-]+)*$`)
	noPrefix   = regexp.MustCompile(`^/(v1|debug|metrics|healthz|readyz)(/|$)`)
)

// Validate refuses combinations that cannot work. Its errors name the flags.
func (o Options) Validate() error {
	o = o.withDefaults()
	switch {
	case o.Data == "":
		return errors.New("no data directory; give --data DIR")
	case o.NATS == "" && !o.has(RoleLanes):
		return errors.New("--roles without lanes needs the NATS server of the log; give --nats URL")
	case o.has(RoleScheduler) && !o.has(RoleLanes):
		return errors.New("--roles: a scheduler serves the lanes of its own server; give lanes,scheduler")
	case o.NATS == "" && o.Replicas > 1:
		return errors.New("--replicas above 1 needs a NATS cluster; give --nats URL")
	case o.NATS != "" && o.Sync != "":
		return errors.New("--sync is for the embedded NATS server; an external one has its own setting, jetstream { sync_interval: always }")
	case o.Lanes < 0 || o.Lanes > topology.MaxLanes:
		return fmt.Errorf("--lanes must be between 1 and %d", topology.MaxLanes)
	}
	if o.Credentials != "" {
		if _, err := datadir.ParseCredentials(o.Credentials); err != nil {
			return fmt.Errorf("--credentials (better: the variable SCRIP_CREDENTIALS, or SCRIP_CREDENTIALS_FILE) %w", err)
		}
	}
	if o.NATS != "" {
		if _, err := url.Parse(o.NATS); err != nil {
			return fmt.Errorf("--nats %q must be a URL such as nats://HOST:4222", o.NATS)
		}
	}
	if o.Postgres != "" {
		if u, err := url.Parse(o.Postgres); err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
			return errors.New("--postgres must be a URL such as postgres://USER:PASSWORD@HOST:5432/DATABASE")
		}
	}
	if o.NATS == "" {
		if err := o.mayListen("--nats-listen", o.NATSListen); err != nil {
			return err
		}
	}
	if o.TablesDir != "" && o.Postgres != "" {
		return errors.New("--tables-dir is for the private PostgreSQL; the one of --postgres has its own directory")
	}
	if o.PostgresListen != "" {
		host, _, err := net.SplitHostPort(o.PostgresListen)
		switch {
		case err != nil:
			return fmt.Errorf("--postgres-listen %q must be HOST:PORT such as 127.0.0.1:5433", o.PostgresListen)
		case o.Postgres != "":
			return errors.New("--postgres-listen is for the private PostgreSQL; the one of --postgres has its own address")
		case !loopback(host) && o.TLSCert == "":
			return fmt.Errorf("--postgres-listen %s can be reached from other machines, which need TLS; give --tls-cert and --tls-key, or listen on 127.0.0.1", o.PostgresListen)
		}
	}
	if (o.TLSCert == "") != (o.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key are given together")
	}
	if o.OpsListen != "" {
		if err := o.mayListen("--ops-listen", o.OpsListen); err != nil {
			return err
		}
		if host, _, _ := net.SplitHostPort(o.OpsListen); !loopback(host) && o.Credentials == "" {
			return fmt.Errorf("--ops-listen %s can be reached from other machines, and profiles require credentials there, also with --insecure; set SCRIP_CREDENTIALS=USER:PASSWORD, or listen on 127.0.0.1", o.OpsListen)
		}
	}
	if p := o.HTTPPrefix; !prefixForm.MatchString(p) || noPrefix.MatchString(p) || len(p) > 64 {
		return fmt.Errorf("--http-prefix %q must be a path such as /coupons, of letters, digits, - and _, at most 64, that does not start as one of the server's own", p)
	}
	for _, n := range o.HTTPProxies {
		if n.Bits() == 0 {
			return fmt.Errorf("--http-trusted-proxies %s trusts every client to choose its own address; name the networks of your proxies", n)
		}
	}
	return o.mayListen("--http-listen", o.HTTPListen)
}

// mayListen refuses addresses that other machines can reach, unless credentials are given.
func (o Options) mayListen(flag, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%s %q must be HOST:PORT such as 127.0.0.1:8080", flag, addr)
	}
	if loopback(host) || o.Credentials != "" || o.Insecure {
		return nil
	}
	return fmt.Errorf("%s %s can be reached from other machines, and no credentials are given; set SCRIP_CREDENTIALS=USER:PASSWORD, listen on 127.0.0.1, or give --insecure to require none", flag, addr)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
