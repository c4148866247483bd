package server

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/audit"
)

// keysWait is how long a start waits for the keys. Until they are read, every key is refused; the credentials of the data
// directory work.
const keysWait = 5 * time.Second

// keys are the users of this server.
type keys struct {
	registry *access.Registry
	store    *access.Store
	audit    *audit.Log
}

// audited is the registry of keys, and records log-ins by a way, such as http.
type audited struct {
	*access.Registry
	server *server
	via    string
}

// Authenticate is described at access.Registry.
func (a audited) Authenticate(key string) (access.Principal, error) {
	p, err := a.Registry.Authenticate(key)
	if err == nil {
		a.server.loggedIn(p, a.via, "")
	}
	return p, err
}

// loggedIn records a log-in.
func (s *server) loggedIn(p access.Principal, via, from string) {
	s.keys.audit.LoggedIn(func(err error) {
		s.log.Warn("a log-in is not in the audit stream; the next one will be", "key", p.ID, "err", err)
	}, access.Author{Principal: p, Via: via, From: from}.LoggedIn()...)
}

// startAccess follows the keys of users, for HTTP, log-ins to NATS and the service of this server.
func (s *server) startAccess(ctx context.Context) error {
	log := audit.Open(s.js, nil)
	store := access.Open(s.js, access.Options{Logger: s.log, Audit: log})
	s.keys = keys{registry: store.Registry(), store: store, audit: log}
	s.registry.Store(s.keys.registry)
	if err := s.metrics.registry.Register(s.keys.registry); err != nil {
		return err
	}
	if err := s.startLogins(ctx); err != nil {
		return err
	}
	s.group.start("access", s.keys.registry.Run)
	s.health.add("access", false, func() (bool, any) {
		status := s.keys.registry.Status()
		return status.Following, status
	})
	return within(ctx, keysWait, s.keys.registry.Ready(), func() {
		s.log.Warn("cannot read the keys of users; all keys are refused until they are read", "err", s.keys.registry.Status().Error)
	})
}

// startLogins answers log-ins to NATS with keys. With --insecure NATS requires no log-in. An external NATS whose configuration
// lacks the accounts of `scrip nats config` sends no log-ins here, and keys open HTTP alone.
//
// It is called before the keys are followed, so that users are disconnected whose key was revoked while no server ran.
func (s *server) startLogins(ctx context.Context) error {
	issuer := s.issuer
	switch {
	case s.natsd != nil && s.natsCredentials() == (datadir.Credentials{}):
		return nil
	case s.natsd == nil && !s.opts.has(RoleLanes) && !s.opts.has(RoleAPI):
		return nil // without the code key; another server answers
	case s.natsd == nil:
		var err error
		if issuer, err = callout.IssuerOf(s.key); err != nil {
			return err
		}
	}
	nc, err := s.connect(ctx, "logins")
	if err != nil {
		return err
	}
	r := callout.New(nc, s.stream.Lanes, issuer, s.keys.registry, s.log)
	r.Strangers = s.strangers
	r.LoggedIn = func(p access.Principal, from string) { s.loggedIn(p, "nats", from) }
	s.group.start("logins", r.Run)
	s.health.add("logins", false, func() (bool, any) { return nc.IsConnected(), nil })
	return nil
}
