package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// natsWait is how long an external NATS may take to accept connections: servers are often started together.
	natsWait = 30 * time.Second
	natsPoll = 500 * time.Millisecond
)

// startNATS starts the embedded server or finds the external one.
func (s *server) startNATS(ctx context.Context) error {
	if s.opts.NATS != "" {
		s.natsURL, s.descriptor.NATSCA = s.opts.NATS, s.opts.NATSCA
	} else if err := s.embedNATS(); err != nil {
		return err
	}
	nc, err := s.connect(ctx, "serve")
	if err != nil {
		return err
	}
	s.nc = nc
	if s.js, err = jetstream.New(nc); err != nil {
		return fmt.Errorf("opening JetStream: %w", err)
	}
	s.health.add("nats", true, func() (bool, any) {
		if !nc.IsConnected() {
			return false, map[string]any{"error": "not connected to NATS; retrying without a limit"}
		}
		if s.natsd != nil && !s.natsd.JetStreamUp() {
			return false, map[string]any{"error": "JetStream is down, most likely because the disk is full; it is restarted when there is space"}
		}
		return true, map[string]any{"server": natsx.WithoutUser(nc.ConnectedUrl()), "embedded": s.natsd != nil, "sync": syncText(s.opts.Sync)}
	})
	return nil
}

// natsCredentials are required of every client of the embedded server.
func (s *server) natsCredentials() datadir.Credentials {
	if s.opts.Insecure && s.opts.Credentials == "" {
		return datadir.Credentials{}
	}
	return s.credentials
}

func (s *server) embedNATS() error {
	if s.dir.Interrupted() {
		return fmt.Errorf("a restore into %s is incomplete; run `scrip restore` again, or, to make a new log, remove %s", s.dir.Path(), s.dir.Restoring())
	}
	required := s.natsCredentials()
	lanes := max(cmp.Or(s.opts.Lanes, topology.DefaultLanes), natsd.Lanes(s.dir.NATS()))
	if s.opts.Sync == natsd.SyncInterval {
		s.log.Warn("--sync interval: " + mayLose)
	}
	opts := natsd.Options{
		StoreDir: s.dir.NATS(), Listen: s.opts.NATSListen, Sync: s.opts.Sync, Lanes: lanes,
		Username: required.User, Password: required.Password, TLS: s.serverTLS(), Own: s.ownTLS(), Logger: s.log,
		Connections: s.opts.NATSConnections, Pending: int64(s.opts.NATSPending) << 20,
	}
	if required != (datadir.Credentials{}) {
		var err error
		if s.issuer, err = callout.NewIssuer(); err != nil {
			return err
		}
		opts.Accounts = natsauth.Render(natsauth.Config{
			Lanes: lanes, Users: []natsauth.User{{Name: required.User, Password: required.Password}}, Issuer: s.issuer.Public(),
		})
	}
	started := time.Now()
	ns, err := natsd.Start(opts)
	if err != nil {
		return err
	}
	s.metrics.registry.MustRegister(recovery(time.Since(started)))
	s.natsd = ns
	s.limits.add(ns.Limits)
	_, addr, _ := strings.Cut(ns.ClientURL(), "://")
	scheme := "nats"
	if s.certs != nil {
		scheme, s.descriptor.NATSCert = "tls", s.certs.File()
	}
	s.natsURL = reachable(scheme, required, addr)
	s.group.start("nats", func(ctx context.Context) error {
		if err := ns.Run(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	return nil
}

// recovery is the metric of a start of the embedded NATS.
func recovery(took time.Duration) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "scrip_nats_recovery_seconds", Help: "How long the embedded NATS took to read its store at the start of this server; the lanes come after it."},
		took.Seconds)
}

// mayLose is the warning in logs and status of a server without fsync.
const mayLose = "may lose the last seconds on power loss; for development only"

func syncText(mode string) string {
	switch mode {
	case natsd.SyncInterval:
		return mode + ": " + mayLose
	case "":
		return "as set in the external NATS server: unless that has jetstream { sync_interval: always }, a power loss may lose commands that were answered up to two minutes before it"
	}
	return mode
}

// connect opens a connection that reconnects without a limit. Each part has its own, so that the traffic of one does not
// delay that of another.
func (s *server) connect(ctx context.Context, name string) (*nats.Conn, error) {
	opts := append(natsx.Options("scrip "+name+" "+s.id),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrBadHeaderMsg) {
				return // of a client's request, which is refused; anybody who may send one could fill the log
			}
			if s.violations.saw(name, err) {
				return
			}
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			s.log.Warn("NATS connection error", "of", name, "subject", subject, "err", err)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				s.log.Warn("NATS connection lost; reconnecting", "of", name, "err", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { s.log.Info("NATS connection restored", "of", name) }),
	)
	opts = append(opts, s.opts.NATSOptions...)
	if own := s.ownTLS(); own != nil && s.natsd != nil {
		opts = append(opts, nats.Secure(own))
	}
	deadline := time.Now().Add(natsWait)
	for logged := false; ; logged = true {
		nc, err := nats.Connect(s.natsURL, opts...)
		if err == nil {
			s.mu.Lock()
			s.conns = append(s.conns, nc)
			s.mu.Unlock()
			return nc, nil
		}
		hint := "start it, or give another URL with --nats"
		if errors.Is(err, nats.ErrAuthorization) || time.Now().After(deadline) {
			if errors.Is(err, nats.ErrAuthorization) {
				hint = "give credentials in the URL: nats://USER:PASSWORD@HOST:PORT"
			}
			return nil, fmt.Errorf("connecting to NATS at %s: %w; %s", natsx.WithoutUser(s.natsURL), err, hint)
		}
		if !logged {
			s.log.Warn("NATS is unavailable; waiting", "url", natsx.WithoutUser(s.natsURL), "for", natsWait, "err", err)
		}
		if err := natsx.Pause(ctx, natsPoll); err != nil {
			return nil, err
		}
	}
}

// jetStream is a connection of a part of its own, with JetStream.
func (s *server) jetStream(ctx context.Context, part string) (jetstream.JetStream, error) {
	nc, err := s.connect(ctx, part)
	if err != nil {
		return nil, err
	}
	return jetstream.New(nc)
}

// openLog opens or creates the log, with the code key if a role needs it.
func (s *server) openLog(ctx context.Context) error {
	found, exists, err := topology.Inspect(ctx, s.js)
	if err != nil {
		return err
	}
	if !exists && s.natsd == nil && natsd.HasStreams(s.dir.NATS()) {
		// An operator who moves to a cluster expects the log to move too. It would be empty, with the key of the old one.
		return fmt.Errorf("the data directory %s has the log of an embedded NATS server, and %s has no log yet: a new one would be empty. "+
			"To move the log there: start `scrip serve --data %s` without --nats, `scrip backup NAME`, stop it, then `scrip restore DIR --nats URL --replicas 3`, where DIR is %s unless serve has --backups. "+
			"Never start a clustered nats-server on %s: it deletes all streams. For an independent log, give another directory with --data",
			s.dir.Path(), natsx.WithoutUser(s.natsURL), s.dir.Path(), filepath.Join(s.dir.Path(), datadir.Backups, "NAME"), s.dir.NATS())
	}
	spec := topology.Spec{Lanes: s.opts.Lanes, Replicas: s.opts.Replicas}
	if spec.Lanes == 0 && !exists && s.natsd == nil {
		spec.Lanes = DefaultExternalLanes
	}
	var key datadir.Key
	if s.opts.has(RoleLanes) || s.opts.has(RoleAPI) {
		if !exists && !s.opts.has(RoleLanes) {
			return errors.New("there is no log on that NATS server yet; start a server with the lanes role first, which creates it and its code key")
		}
		if key, err = s.dir.Key(s.opts.CodeKey, found.KeyFingerprint); err != nil {
			return err
		}
		if key.Made {
			s.log.Info("created a new code key; keep a copy in a safe place: without it no server starts on the log, and a backup without the key cannot be decrypted", "file", key.From)
		}
		s.key = key.Key
		spec.KeyFingerprint = code.Fingerprint(key.Key)
	}
	if s.natsd != nil && !exists {
		// The servers' user has rights on the streams of so many lanes; a crash must not leave a log with more than are recorded.
		if err := s.natsd.SetMapping(max(cmp.Or(spec.Lanes, topology.DefaultLanes), natsd.Lanes(s.dir.NATS()))); err != nil {
			return err
		}
	}
	if s.stream, err = topology.Ensure(ctx, s.js, spec); err != nil {
		if errors.Is(err, topology.ErrRefused) {
			err = errors.Join(err, s.dir.DiscardKey(key))
		}
		return err
	}
	if spec.KeyFingerprint != "" {
		s.stream = s.stream.WithKey(s.key)
	} else if s.stream, err = datadir.Unlock(s.stream, s.dir.Path(), s.opts.CodeKey, s.opts.SealKey, s.log); err != nil {
		return err
	}
	for _, d := range s.stream.Drift { // also from what the flags are; startCondition watches the rest
		s.log.Warn(differs, "difference", d)
	}
	if s.natsd != nil {
		return s.natsd.SetMapping(s.stream.Lanes)
	}
	return nil
}

// differs is logged for each setting of a stream that is not as scrip would make it.
const differs = "the log's streams differ from those that this version would create; nothing was changed"
