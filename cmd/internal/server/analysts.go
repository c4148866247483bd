package server

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// analystsEvery is how often the roles of analysts in PostgreSQL are compared with the keys.
const analystsEvery = 500 * time.Millisecond

// maskKey is the secret under which codes are masked, equal on all servers that have the code key.
func (s *server) maskKey() ([sha256.Size]byte, error) {
	key, err := hkdf.Key(sha256.New, s.key[:], []byte(s.stream.UUID), "scrip mask v1", sha256.Size)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("deriving the key of masks: %w", err)
	}
	return [sha256.Size]byte(key), nil
}

// startAnalysts keeps the roles of analysts in PostgreSQL equal to the keys in force, also in one that is new. A server without the
// projector may have no rights to; it only tries, because it may have the code key, and the projector's server none.
func (s *server) startAnalysts(context.Context) error {
	if s.tables == nil {
		return nil
	}
	key, err := s.maskKey()
	if err != nil {
		return err
	}
	var inner, outer []byte
	if s.key != ([32]byte{}) {
		inner, outer = replay.NewMask(key, false).Pads()
	}
	var failed atomic.Pointer[string]
	if s.opts.has(RoleProjector) {
		s.health.add("analysts", false, func() (bool, any) {
			why := failed.Load()
			return why == nil, map[string]any{"error": why}
		})
	}
	s.group.start("analysts", func(ctx context.Context) error {
		for natsx.Pause(ctx, analystsEvery) == nil {
			logins := s.keys.registry.Logins()
			if logins == nil || s.settled != nil && !s.settled() { // the projector makes the tables
				continue
			}
			err := confine.Analysts(ctx, s.tables.pool, logins, inner, outer)
			if err == nil || ctx.Err() != nil {
				failed.Store(nil)
				continue
			}
			// While PostgreSQL or the tables are away, others report that.
			if state := schema.State(err); state != "42501" && state != "P0001" {
				continue
			}
			if text := err.Error(); failed.Swap(&text) == nil && s.opts.has(RoleProjector) {
				s.log.Warn("the roles of analysts in PostgreSQL are not those of the keys; retrying", "err", err)
			}
		}
		return nil
	})
	return nil
}

// analystURL is the URL of the read tables for a key, without its password, which is the key; "" = it has none, or not here.
func (s *server) analystURL(k *access.Key) string {
	if s.tables == nil || k.Role != access.Analyst {
		return ""
	}
	u, err := url.Parse(s.tables.url())
	if err != nil || u.Host == "" {
		return ""
	}
	if host := s.tables.host; host != "" {
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			host, _ = os.Hostname()
		}
		u.Host, u.RawQuery = net.JoinHostPort(host, u.Port()), "sslmode=require"
	}
	u.User = url.User(access.SQLUser(k.ID))
	return u.String()
}
