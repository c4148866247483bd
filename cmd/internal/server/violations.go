package server

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	// violationEvery is how often a subject that NATS refuses is logged. Of others, which differ in a number, mostViolations have
	// a line in that time; all are counted.
	violationEvery = time.Minute
	mostViolations = 16
)

// violations are what NATS refuses to this server's own user. Each is a part that does not work, and a retry does not help.
type violations struct {
	log   *slog.Logger
	total prometheus.Counter

	mu     sync.Mutex
	logged map[string]time.Time // by subject, those of the last violationEvery
}

func newViolations(log *slog.Logger) *violations {
	return &violations{log: log, logged: map[string]time.Time{}, total: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "scrip_nats_violations_total",
		Help: "Publishes and subscriptions that NATS refused to this server's own user; each is a fault, and the log names the subject.",
	})}
}

// saw takes an error of a part's connection, and reports whether it was a violation.
func (v *violations) saw(part string, err error) bool {
	what, subject, ok := natsx.Violation(err)
	if !ok {
		return false
	}
	v.total.Inc()
	if v.logs(subject, time.Now()) {
		v.log.Error(natsx.Refused, "of", part, "refused", what, "subject", subject)
	}
	return true
}

func (v *violations) logs(subject string, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for s, at := range v.logged {
		if now.Sub(at) >= violationEvery {
			delete(v.logged, s)
		}
	}
	if _, has := v.logged[subject]; has || len(v.logged) >= mostViolations {
		return false
	}
	v.logged[subject] = now
	return true
}
