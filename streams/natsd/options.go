package natsd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// Version of the embedded server.
const Version = server.VERSION

const (
	// DefaultListen is the default address for clients.
	DefaultListen = "127.0.0.1:4222"
	// DefaultMaxPayload is the largest message in bytes, NATS' own default. A step needs half of it.
	DefaultMaxPayload = 1 << 20

	// SyncAlways fsyncs every message before it is acknowledged.
	SyncAlways = "always"
	// SyncInterval leaves the fsync to the kernel and a periodic sync: for development; a power cut loses what was
	// acknowledged since.
	SyncInterval = "interval"
	// syncEvery is the period of SyncInterval, short because it costs little and a developer's machine may crash.
	syncEvery = 2 * time.Second

	// A silent connection of a client, or of a node of the cluster, is closed a little later than clients close it, after 3 to
	// 4 s (by default 6 minutes, nodes 90 s). Until then it gets its share of the requests to the micro service.
	// docker/nats/cluster.conf has the same for separate nats-servers.
	pingEvery = natsx.PingEvery
	pingsOut  = natsx.PingsOut + 1
	// writeWait is how long a write to a client may take before its connection is closed.
	writeWait = 5 * time.Second
	// tlsWait is how long the handshake of a client may take.
	tlsWait = 5 * time.Second

	// maxStore switches nats-server's own guess of the disk limit off (three quarters of the free space at its start, from
	// which every stream's max_bytes is reserved at once). The disk itself bounds the log.
	maxStore = 1 << 50
	// maxMemory bounds JetStream's memory streams; scrip's consumers need a few bytes each there.
	maxMemory = 1 << 30
)

// Options for Start. Only StoreDir is required.
type Options struct {
	// StoreDir holds JetStream's files. Created if missing.
	StoreDir string
	// Listen is HOST:PORT for clients; port 0 or -1 takes a free one. Defaults to DefaultListen.
	Listen string
	// Sync is SyncAlways or SyncInterval. Defaults to SyncAlways.
	Sync string
	// ServerName defaults to "scrip".
	ServerName string
	// MaxPayload is the largest message in bytes. Defaults to DefaultMaxPayload.
	MaxPayload int32
	// Lanes, if positive, sets the subject mapping before the first client connects, unless the store's marker has a number:
	// pass the number that a new log would get, then call SetMapping with the log's own.
	Lanes int
	// Username and Password, if set, are required of every client. Connect uses them by itself.
	Username, Password string
	// Accounts, if set, is the text of package natsauth, with Username and Password as the user of the servers' account. Other
	// log-ins are answered by scrip, see package callout.
	Accounts string
	// TLS, if set, is required of every client. Its GetCertificate may return another certificate at any time. Own is the
	// configuration of this process's connections to it.
	TLS, Own *tls.Config
	// Connections is how many clients may connect; the limits of strangers, keys and accounts are parts of it, see newLimits.
	// Defaults to half of the files that the process may open, 16,384 at most: the others are for JetStream, PostgreSQL and HTTP.
	Connections int
	// Pending is how many bytes may wait for the clients of one key. Defaults to DefaultPending.
	Pending int64
	// Cluster, if set, makes this server one node of a cluster.
	Cluster *Cluster
	// Clock is the source of time of Run. Defaults to wall.Machine.
	Clock wall.Clock
	// Logger gets nats-server's warnings and errors, and its notices as debug. Defaults to slog.Default.
	Logger *slog.Logger
}

// Cluster makes a server one node of a cluster. ServerName must differ from node to node.
type Cluster struct {
	// Name of the cluster, the same on all nodes.
	Name string
	// Listen is HOST:PORT for the other nodes.
	Listen string
	// User and Password are required of nodes that join: a node reads and writes everything.
	User, Password string
	// Routes are the other nodes, as nats://USER:PASSWORD@HOST:PORT. A node's own address among them does no harm.
	Routes []string
}

func (o Options) withDefaults() Options {
	if o.Listen == "" {
		o.Listen = DefaultListen
	}
	if o.Sync == "" {
		o.Sync = SyncAlways
	}
	if o.ServerName == "" {
		o.ServerName = "scrip"
	}
	if o.MaxPayload == 0 {
		o.MaxPayload = DefaultMaxPayload
	}
	if o.Connections == 0 {
		o.Connections = OpenFiles(2, mostConnections)
	}
	if o.Pending == 0 {
		o.Pending = DefaultPending
	}
	if o.Clock == nil {
		o.Clock = wall.Machine
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// server turns the options into nats-server's.
func (o Options) server() (*server.Options, error) {
	if o.StoreDir == "" {
		return nil, fmt.Errorf("the embedded NATS server needs a directory for its store")
	}
	if o.Sync != SyncAlways && o.Sync != SyncInterval {
		return nil, fmt.Errorf("sync is %q, expected %q or %q (--sync)", o.Sync, SyncAlways, SyncInterval)
	}
	host, port, err := hostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen address %q: %w; use HOST:PORT (--nats-listen)", o.Listen, err)
	}
	so := &server.Options{
		ServerName:         o.ServerName,
		Host:               host,
		Port:               port,
		MaxPayload:         o.MaxPayload,
		Username:           o.Username,
		Password:           o.Password,
		JetStream:          true,
		StoreDir:           filepath.Clean(o.StoreDir),
		JetStreamMaxStore:  maxStore,
		JetStreamMaxMemory: maxMemory,
		SyncAlways:         o.Sync == SyncAlways,
		SyncInterval:       syncEvery,
		PingInterval:       pingEvery,
		MaxPingsOut:        pingsOut,
		WriteDeadline:      writeWait,
		MaxConn:            o.Connections,
		MaxPending:         maxPending,
		MaxClosedClients:   keptClosed,
		NoSigs:             true, // the process handles signals
	}
	if o.Accounts != "" {
		if err := o.addAccounts(so); err != nil {
			return nil, err
		}
	}
	if o.TLS != nil {
		so.TLS, so.TLSConfig, so.TLSTimeout = true, o.TLS, tlsWait.Seconds()
	}
	if c := o.Cluster; c != nil {
		host, port, err := hostPort(c.Listen)
		if err != nil {
			return nil, fmt.Errorf("cluster address %q: %w; use HOST:PORT", c.Listen, err)
		}
		if c.User == "" || c.Password == "" {
			return nil, errors.New("a cluster needs a user and a password for its nodes")
		}
		so.Cluster = server.ClusterOpts{Name: c.Name, Host: host, Port: port, Username: c.User, Password: c.Password, PingInterval: pingEvery, MaxPingsOut: pingsOut}
		for _, r := range c.Routes {
			so.Routes = append(so.Routes, server.RoutesFromStr(r)...)
		}
	}
	return so, nil
}

// hostPort splits an address; port 0 becomes nats-server's -1, "any free one".
func hostPort(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < -1 || port > 65535 {
		return "", 0, fmt.Errorf("port %q is not a number from 0 to 65535", p)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// globalAccount is NATS' account of users without another.
const globalAccount = server.DEFAULT_GLOBAL_ACCOUNT

// addAccounts adds Options.Accounts to nats-server's options.
//
// Here the servers' account, which is the one that answers log-ins, is the global one, which a configuration file cannot name:
// JetStream's paths contain the account, so a store stays where it is when accounts are switched on or off.
// nats-server's own `mappings` block makes an account of this name in its options, too, and NewServer then applies it to the
// global account.
func (o Options) addAccounts(so *server.Options) error {
	so.Username, so.Password = "", "" // now a user of the servers' account
	if err := so.ProcessConfigString(o.Accounts); err != nil {
		return fmt.Errorf("the accounts of the embedded NATS server: %w", err)
	}
	if so.AuthCallout == nil {
		return errors.New("the accounts of the embedded NATS server name none that answers log-ins")
	}
	for _, a := range so.Accounts {
		if a.Name == so.AuthCallout.Account {
			a.Name = globalAccount
		}
	}
	so.AuthCallout.Account = globalAccount
	return nil
}
