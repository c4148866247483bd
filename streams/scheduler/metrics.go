package scheduler

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/priority"
)

// Metrics are the counts of all schedulers of a process, by lane. Counters count what this process folded live; a
// replay counts nothing again.
type Metrics struct {
	fired, dropped, cancelled *prometheus.CounterVec // by priority
	expired                   *prometheus.CounterVec
	requested, requestsFailed *prometheus.CounterVec
	repeats                   *prometheus.CounterVec
	published, disagreements  *prometheus.CounterVec
	lateness                  *prometheus.HistogramVec

	oldest, waiting, outstanding, paused *prometheus.GaugeVec
	share, pending, instants             *prometheus.GaugeVec
	folded, snapshot, caughtUp           *prometheus.GaugeVec
}

// NewMetrics makes the metrics and registers them with reg, unless it is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scrip_scheduler_" + name, Help: help}, append([]string{"lane"}, labels...))
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "scrip_scheduler_" + name, Help: help}, append([]string{"lane"}, labels...))
	}
	m := &Metrics{
		fired:          counter("reminders_fired_total", "Reminders that fired, by the campaign's priority.", "priority"),
		dropped:        counter("reminders_dropped_total", "Reminders dropped because what they announce had passed, they were later than late_after, or their campaign had ended, by its priority.", "priority"),
		cancelled:      counter("reminders_cancelled_total", "Reminders cancelled before they fired, by a command or because their coupon was redeemed or voided, by the campaign's priority.", "priority"),
		expired:        counter("coupons_expired_total", "Coupons announced as expired."),
		requested:      counter("requests_total", "Commands published to the lane, by type.", "type"),
		repeats:        counter("requests_repeated_total", "Commands published again because they were not answered in time."),
		requestsFailed: counter("requests_failed_total", "Rounds of commands that could not be published; they are repeated."),
		published:      counter("reminders_published_total", "Customers published on the reminder stream."),
		disagreements:  counter("disagreements_total", "Events that fired another number of reminders than this scheduler knew of."),
		lateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scrip_scheduler_lateness_seconds", Help: "From the due instant to the event, by kind (expiry or reminder) and the campaign's priority.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600},
		}, []string{"lane", "kind", "priority"}),
		oldest:      gauge("oldest_due_age_seconds", "Age of the oldest instant that is due and not yet answered, by the campaign's priority; 0 if nothing is. What a pause holds back does not count.", "priority"),
		waiting:     gauge("customers_waiting", "Customers whose reminder is due and not requested yet, about, by the campaign's priority.", "priority"),
		outstanding: gauge("outstanding", "What was requested and is not done, by kind: expiry in campaigns, reminder in customers, until they are on the reminder stream.", "kind"),
		paused:      gauge("paused_due_campaigns", "Campaigns with something due that a pause holds back, by kind (expiry or reminder).", "kind"),
		share:       gauge("dispatch_share", "Share of time in which the fan-out may work: 1 while no commands are being answered, 1/16 at least."),
		pending:     gauge("reminders_pending", "Reminders that are set and have not fired."),
		instants:    gauge("due_instants", "Instants at which coupons are still to expire, over all campaigns."),
		folded:      gauge("folded_sequence", "Sequence of the last event message folded."),
		caughtUp:    gauge("caught_up", "1 while the lane's scheduler works, 0 while it still reads the log, no value while there is none: then nothing becomes due, and there is no age."),
		snapshot:    gauge("snapshot_timestamp_seconds", "When the last snapshot was stored."),
	}
	if reg != nil {
		reg.MustRegister(m.fired, m.dropped, m.cancelled, m.expired, m.requested, m.repeats, m.requestsFailed, m.published, m.disagreements, m.lateness)
		for _, g := range m.gauges() {
			reg.MustRegister(g)
		}
	}
	return m
}

func (m *Metrics) gauges() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{m.oldest, m.waiting, m.outstanding, m.paused, m.share, m.pending, m.instants, m.folded, m.snapshot, m.caughtUp}
}

// forget drops the gauges: they describe the owner of the lane. When the lane is lost they go, so that those of its next owner
// are the only ones.
func (m *Metrics) forget(lane int) {
	for _, g := range m.gauges() {
		g.DeletePartialMatch(prometheus.Labels{"lane": strconv.Itoa(lane)})
	}
}

// meters are the metrics of one lane that are set often, looked up once.
type meters struct {
	requested                                map[wire.CommandType]prometheus.Counter
	expired, repeats, requestsFailed, differ prometheus.Counter
	fired, dropped, cancelled                [priority.Campaigns]prometheus.Counter
	late                                     [classes][priority.Campaigns]prometheus.Observer
	pending, instants, foldedSequence        prometheus.Gauge
}

func (r *run) meter() {
	m, lane := r.opts.Metrics, strconv.Itoa(r.lane)
	r.requested = map[wire.CommandType]prometheus.Counter{
		wire.Expire:    m.requested.WithLabelValues(lane, wire.Expire.String()),
		wire.RemindDue: m.requested.WithLabelValues(lane, wire.RemindDue.String()),
	}
	r.expired, r.repeats = m.expired.WithLabelValues(lane), m.repeats.WithLabelValues(lane)
	r.requestsFailed, r.differ = m.requestsFailed.WithLabelValues(lane), m.disagreements.WithLabelValues(lane)
	for p := range priority.Campaigns {
		name := p.String()
		r.fired[p], r.dropped[p], r.cancelled[p] = m.fired.WithLabelValues(lane, name), m.dropped.WithLabelValues(lane, name), m.cancelled.WithLabelValues(lane, name)
		for c := range classes {
			r.late[c][p] = m.lateness.WithLabelValues(lane, c.String(), name)
		}
	}
	r.pending, r.instants, r.foldedSequence = m.pending.WithLabelValues(lane), m.instants.WithLabelValues(lane), m.folded.WithLabelValues(lane)
	m.caughtUp.WithLabelValues(lane).Set(0)
}

// show sets the gauges from a backlog.
func (m *Metrics) show(lane string, b *Backlog) {
	for p, part := range b.parts() {
		m.oldest.WithLabelValues(lane, p.String()).Set(part.OldestDue.Seconds())
		m.waiting.WithLabelValues(lane, p.String()).Set(float64(part.Waiting))
	}
	m.outstanding.WithLabelValues(lane, reminder.String()).Set(float64(b.Outstanding))
	m.outstanding.WithLabelValues(lane, expiry.String()).Set(float64(b.OutstandingExpiries))
	m.paused.WithLabelValues(lane, reminder.String()).Set(float64(b.PausedReminders))
	m.paused.WithLabelValues(lane, expiry.String()).Set(float64(b.PausedExpiry))
	m.share.WithLabelValues(lane).Set(b.Share)
	m.caughtUp.WithLabelValues(lane).Set(1)
}

// observe counts an event, before it is folded.
func (r *run) observe(ev *wire.Event) {
	e := r.timers.Campaign(ev.Campaign)
	if e == nil {
		return
	}
	switch ev.Type {
	case wire.CouponsExpired:
		r.expired.Add(float64(ev.Count))
		if first := e.FirstExpiry(); first <= ev.Through {
			r.late[expiry][e.Priority].Observe(float64(ev.At-first) / 1e6)
		}
	case wire.RemindersDue:
		r.fired[e.Priority].Add(float64(ev.Fired))
		r.dropped[e.Priority].Add(float64(ev.Dropped))
		r.late[reminder][e.Priority].Observe(float64(ev.At-ev.DueAt) / 1e6)
	case wire.ReminderCancelled:
		r.cancelled[e.Priority].Inc()
	}
}
