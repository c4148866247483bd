package server

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/room"
)

const (
	// analystsEvery is how often the roles and sessions of analysts in PostgreSQL are compared with the keys, and
	// analystsWithin is when that must have been done: a revoked key reads for so long at most.
	analystsEvery, analystsWithin = 500 * time.Millisecond, 2 * time.Second
	// exposedEvery is how often the rights of everybody are read.
	exposedEvery = time.Minute
)

// maskKey is the secret under which codes and customers are masked, equal on all servers that have the code key.
func (s *server) maskKey() ([sha256.Size]byte, error) {
	key, err := hkdf.Key(sha256.New, s.key[:], []byte(s.stream.UUID), "scrip mask v1", sha256.Size)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("deriving the key of masks: %w", err)
	}
	return [sha256.Size]byte(key), nil
}

// analysts keeps the roles of analysts in PostgreSQL, and their sessions, as the keys in force and what all share
// allow. A crash has no effect: another server does so meanwhile, and the next start goes on.
type analysts struct {
	s            *server
	inner, outer []byte // key of masks; nil = this server has no code key

	mu      sync.Mutex // guards the fields below
	guarded time.Time  // the last round that ended what had to end, or the start
	why     error      // of the last round that did not
	failed  string     // why roles are not those of the keys; "" = they are, or others report it
	exposed string     // what analysts may do because the rights are those of PostgreSQL
}

// startAnalysts begins the rounds. A server without the projector may have no rights to; it only tries, because it may
// have the code key, and the projector's server none.
func (s *server) startAnalysts(context.Context) error {
	if s.tables == nil {
		return nil
	}
	key, err := s.maskKey()
	if err != nil {
		return err
	}
	a := &analysts{s: s, guarded: time.Now(), why: errors.New("they were not compared yet")}
	if s.key != ([32]byte{}) {
		a.inner, a.outer = replay.NewMask(key, true, true).Pads()
	}
	if s.opts.has(RoleProjector) {
		s.health.add("analysts", false, a.check)
		if err := s.metrics.registry.Register(a.metric()); err != nil {
			return err
		}
	}
	s.group.start("analysts", func(ctx context.Context) error {
		var looked time.Time
		keys := 0
		for natsx.Pause(ctx, analystsEvery) == nil {
			logins := s.keys.registry.Logins()
			if logins == nil {
				continue
			}
			a.round(ctx, logins)
			if time.Since(looked) > exposedEvery || len(logins) != keys {
				looked, keys = time.Now(), len(logins)
				a.look(ctx)
			}
		}
		return nil
	})
	return nil
}

// round is one comparison, which takes analystsWithin at most.
func (a *analysts) round(ctx context.Context, logins []access.Login) {
	within, cancel := context.WithTimeout(ctx, analystsWithin)
	defer cancel()
	done, err := confine.Analysts(within, a.s.tables.guard, logins, a.inner, a.outer, a.full(), !a.s.nc.IsConnected())
	if ctx.Err() != nil {
		return // the server stops
	}
	if done.Installed {
		a.s.log.Info("took from everybody in the database of the read tables what is more than reading: there are analysts")
	}
	a.idle(within, logins)
	for _, one := range done.Ended {
		a.s.log.Warn("ended sessions in PostgreSQL", "role", one.Role, "because", one.Why, "sessions", one.Sessions)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if done.Guarded {
		a.guarded, a.why = time.Now(), nil
	} else if a.why = err; err == nil {
		a.why = errors.New("unknown")
	}
	was := a.failed
	switch state := schema.State(err); {
	case err == nil:
		a.failed = ""
	case done.Guarded && (state == "42501" || state == "P0001"): // else the tables are away, and others report that
		a.failed = err.Error()
	}
	if a.failed != "" && was == "" && a.s.opts.has(RoleProjector) {
		a.s.log.Warn("the roles of analysts in PostgreSQL are not those of the keys; retrying", "err", a.failed)
	}
}

// idle lets the processes of analysts run while nothing else wants the CPU. If that fails, they have the priority of all others
// until the next round.
func (a *analysts) idle(ctx context.Context, logins []access.Login) {
	cluster := a.s.tables.cluster
	if cluster == nil || len(logins) == 0 {
		return
	}
	if processes, err := confine.Processes(ctx, a.s.tables.guard); err == nil {
		cluster.Idle(processes)
	}
}

// full is true while the disk of a private PostgreSQL has less than the reserve of the log, which may be on it.
func (a *analysts) full() bool {
	if a.s.tables.cluster == nil {
		return false
	}
	space, err := room.Measure(a.s.tables.cluster.Dir())
	return err == nil && space.Free < space.Reserve()
}

// look reads what Install would take away.
func (a *analysts) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, analystsWithin)
	defer cancel()
	exposed, err := confine.Exposed(ctx, a.s.tables.guard)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.exposed = exposed
	}
}

// late is for how long sessions of revoked keys may go on.
func (a *analysts) late() (time.Duration, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.guarded), a.why
}

func (a *analysts) check() (bool, any) {
	late, why := a.late()
	a.mu.Lock()
	defer a.mu.Unlock()
	detail := map[string]any{"error": nil}
	if a.exposed != "" {
		detail["exposed"] = a.exposed
	}
	open := fmt.Sprintf("for %s sessions of revoked keys may go on in PostgreSQL", late.Round(time.Second))
	switch {
	case late > analystsWithin && why != nil:
		detail["error"] = fmt.Sprintf("%s: %v", open, why)
	case late > analystsWithin:
		detail["error"] = open + ": a round takes longer"
	case a.failed != "":
		detail["error"] = a.failed
	}
	return detail["error"] == nil, detail
}

func (a *analysts) metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "scrip_analysts_unguarded_seconds",
		Help: "How long ago this server last ended the sessions of revoked analysts in PostgreSQL, or found none; " +
			"half a second while all is well."}, func() float64 {
		late, _ := a.late()
		return late.Seconds()
	})
}

// analystURL is the URL of the read tables for a key, without its password, which is the key; "" = it has none, or not
// here.
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
	u.User = url.User(access.SQLUser(k.Name))
	return u.String()
}
