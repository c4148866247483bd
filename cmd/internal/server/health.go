package server

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// check is the readiness of one part.
type check struct {
	name string
	// needed is true if the server is not ready while this part is not. Parts that only fill the read tables are not
	// needed: claims work without them.
	needed bool
	run    func() (ok bool, detail any)
}

// health collects the checks of the parts as they are started.
type health struct {
	mu     sync.Mutex
	checks []check
	// serving is true from the end of the start to the start of the stop.
	serving bool
}

func (h *health) add(name string, needed bool, run func() (bool, any)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, check{name, needed, run})
}

func (h *health) serve(yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serving = yes
}

// readiness runs all checks.
func (h *health) readiness() status.Readiness {
	h.mu.Lock()
	checks, ready := h.checks, h.serving
	h.mu.Unlock()
	r := status.Readiness{Ready: ready, Checks: map[string]status.Result{"started": {OK: ready, Needed: true}}}
	for _, c := range checks {
		ok, detail := c.run()
		r.Checks[c.name] = status.Result{OK: ok, Needed: c.needed, Detail: detail}
		r.Ready = r.Ready && (ok || !c.needed)
	}
	return r
}

// good is true if all needed checks are, without regard to serving: then the server may serve.
func (h *health) good() bool {
	h.mu.Lock()
	checks := h.checks
	h.mu.Unlock()
	for _, c := range checks {
		if ok, _ := c.run(); c.needed && !ok {
			return false
		}
	}
	return true
}

// startStatus answers status requests. If the NATS account may not subscribe to them, `scrip status` lacks the reports of
// servers; nothing else depends on them.
func (s *server) startStatus(ctx context.Context) error {
	nc, err := s.connect(ctx, "rollcall")
	if err != nil {
		return err
	}
	refused := prometheus.NewCounter(prometheus.CounterOpts{Name: topology.RepliesRefused, Help: topology.RepliesRefusedHelp, ConstLabels: prometheus.Labels{"place": "rollcall"}})
	if err := s.metrics.registry.Register(refused); err != nil {
		return err
	}
	_, err = nc.Subscribe(status.Subject, func(m *nats.Msg) {
		if !topology.MayReply(m.Reply) {
			if m.Reply != "" {
				refused.Inc()
			}
			return
		}
		report, err := json.Marshal(status.Report{Server: s.id, Version: s.opts.Version, Roles: names(s.opts.Roles), Limits: s.limits.all(), Readiness: s.health.readiness()})
		if err == nil {
			err = m.Respond(report)
		}
		if err != nil {
			s.log.Warn("replying to a status request failed", "err", err)
		}
	})
	return err
}

// names are roles as reports have them.
func names(roles []Role) (all []string) {
	for _, r := range roles {
		all = append(all, string(r))
	}
	return all
}
