package scheduler

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the counts of all schedulers of a process, by lane. Counters count what this process folded live; what a
// replay passes over again is not counted again.
type Metrics struct {
	fired, dropped, expired   *prometheus.CounterVec
	asked, askFailed, repeats *prometheus.CounterVec
	published, disagreements  *prometheus.CounterVec
	lateness                  *prometheus.HistogramVec
	oldest, pending, instants *prometheus.GaugeVec
	folded, snapshot          *prometheus.GaugeVec
}

// NewMetrics makes the metrics and registers them with reg, unless it is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scrip_scheduler_" + name, Help: help}, append([]string{"lane"}, labels...))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "scrip_scheduler_" + name, Help: help}, []string{"lane"})
	}
	m := &Metrics{
		fired:         counter("reminders_fired_total", "Reminders that fired."),
		dropped:       counter("reminders_dropped_total", "Reminders dropped because they were later than the grace, or their campaign had ended."),
		expired:       counter("coupons_expired_total", "Coupons announced as expired."),
		asked:         counter("asks_total", "Commands sent to the lane, by type.", "type"),
		repeats:       counter("asks_repeated_total", "Commands sent again because what they asked for was still due."),
		askFailed:     counter("asks_failed_total", "Messages of commands that could not be published; they are repeated."),
		published:     counter("reminders_published_total", "Customers published on the reminder stream."),
		disagreements: counter("disagreements_total", "Events that fired another number of reminders than this scheduler knew of."),
		lateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scrip_scheduler_lateness_seconds", Help: "From the instant something fell due to the event that says so.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600},
		}, []string{"lane", "kind"}),
		oldest:   gauge("oldest_due_age_seconds", "Age of the oldest instant that is due and not yet answered; 0 if nothing is."),
		pending:  gauge("reminders_pending", "Reminders that are set and have not fired."),
		instants: gauge("due_instants", "Instants at which coupons are still to fall, over all campaigns."),
		folded:   gauge("folded_sequence", "Sequence of the last event message folded."),
		snapshot: gauge("snapshot_timestamp_seconds", "When the last snapshot was stored."),
	}
	if reg != nil {
		reg.MustRegister(m.fired, m.dropped, m.expired, m.asked, m.repeats, m.askFailed, m.published, m.disagreements,
			m.lateness, m.oldest, m.pending, m.instants, m.folded, m.snapshot)
	}
	return m
}

// forget drops the gauges: they describe who works the lane now. When the lane is lost they go, so that its next owner's are the only ones.
func (m *Metrics) forget(lane int) {
	for _, g := range []*prometheus.GaugeVec{m.oldest, m.pending, m.instants, m.folded, m.snapshot} {
		g.DeleteLabelValues(strconv.Itoa(lane))
	}
}
