package server

import (
	"context"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/callout"
)

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
	r.LoggedIn = func(p access.Principal, from string) { s.loggedIn(p, "nats", from) }
	s.group.start("logins", r.Run)
	s.health.add("logins", false, func() (bool, any) { return nc.IsConnected(), nil })
	return nil
}
