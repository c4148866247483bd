package lane

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Metrics of all lanes of a process, labelled by lane.
type Metrics struct {
	badOutcome, badQuery                                                   prometheus.Counter
	commands, refused, steps, rebased, unknown, lost, foreign, lateQueries *prometheus.CounterVec
	sequence, covered, owned, campaigns, waiting                           *prometheus.GaugeVec
	outcomes                                                               *prometheus.CounterVec
	write, size                                                            *prometheus.HistogramVec
	snapshotAt, snapshotting, stateEvents, gap                             *prometheus.GaugeVec
}

// NewMetrics makes the instruments and registers them with r, which may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scrip_lane_" + name, Help: help}, []string{"lane"})
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "scrip_lane_" + name, Help: help}, []string{"lane"})
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "scrip_lane_" + name, Help: help, Buckets: buckets}, []string{"lane"})
	}
	m := &Metrics{
		commands: counter("commands_total", "Command lines answered."),
		refused:  counter("stopped_total", "Times the lane stopped because the log contradicts itself."),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scrip_lane_outcomes_total",
			Help: "Command lines answered, by what with: ok, repeat or the refusal."}, []string{"lane", "command", "outcome"}),
		steps:        counter("steps_total", "Event messages written."),
		rebased:      counter("rebased_total", "Times an operator rebased the lane."),
		unknown:      counter("writes_unknown_total", "Writes whose result had to be looked up."),
		lost:         counter("lost_total", "Times a fence was lost to another owner."),
		foreign:      counter("foreign_messages_total", "Foreign messages on the event stream."),
		lateQueries:  counter("queries_dropped_total", "Queries dropped because too many waited, or because they waited longer than their client."),
		badOutcome:   repliesRefused("outcome"),
		badQuery:     repliesRefused("query"),
		sequence:     gauge("event_sequence", "Sequence of the newest event message."),
		covered:      gauge("command_sequence", "Sequence of the newest decided command message."),
		owned:        gauge("owned", "1 while this process decides for the lane, 0 while it does not. The other gauges of the lane are its owner's."),
		campaigns:    gauge("campaigns", "Campaigns in the lane's state."),
		waiting:      gauge("waiting_for_clock", "1 while the lane waits because commands are stamped in the future."),
		write:        histogram("write_seconds", "Time from publishing a step to its acknowledgement.", prometheus.ExponentialBuckets(0.0001, 2, 16)),
		size:         histogram("step_commands", "Command lines per step.", prometheus.ExponentialBuckets(1, 4, 8)),
		snapshotAt:   gauge("snapshot_timestamp_seconds", "When the newest snapshot was completed."),
		snapshotting: gauge("snapshot_writing", "1 while a snapshot is being written."),
		gap:          gauge("clock_gap_seconds", "How far the lane's last event was before the machine's clock at the takeover; below zero it was in the future."),
		stateEvents:  gauge("events_since_snapshot", "Event lines a restart would replay."),
	}
	if r != nil {
		r.MustRegister(m.commands, m.refused, m.steps, m.rebased, m.unknown, m.lost, m.foreign, m.lateQueries, m.badOutcome, m.badQuery, m.sequence, m.outcomes,
			m.covered, m.owned, m.campaigns, m.waiting, m.write, m.size, m.snapshotAt, m.snapshotting, m.stateEvents, m.gap)
	}
	return m
}

// forget drops the gauges of a lane that this process does not own any more: they describe the owner's work. Counters stay, for they
// say what this process did.
func (m *Metrics) forget(lane string) {
	m.owned.WithLabelValues(lane).Set(0)
	for _, g := range []*prometheus.GaugeVec{m.sequence, m.covered, m.campaigns, m.waiting, m.snapshotAt, m.snapshotting, m.stateEvents, m.gap} {
		g.DeleteLabelValues(lane)
	}
}

// repliesRefused is the counter of one place of this package.
func repliesRefused(place string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: topology.RepliesRefused, Help: topology.RepliesRefusedHelp, ConstLabels: prometheus.Labels{"place": place}})
}

// tally counts the outcomes of a step that is durable.
func (l *Lane) tally(all []domain.OutcomeCount) {
	l.tallied.Lock()
	defer l.tallied.Unlock()
	if l.outcomes == nil {
		l.outcomes = map[domain.OutcomeKind]*tallied{}
	}
	for _, of := range all {
		t := l.outcomes[of.OutcomeKind]
		if t == nil {
			t = &tallied{metric: l.opt.Metrics.outcomes.WithLabelValues(l.label, of.Command.String(), of.Result())}
			l.outcomes[of.OutcomeKind] = t
		}
		t.count += of.Count
		t.metric.Add(float64(of.Count))
	}
}

// tallied counts outcomes of a kind.
type tallied struct {
	count  uint64
	metric prometheus.Counter
}

// Outcomes returns how many command lines this process has answered as the lane's owner, by command and what with, such as
// "claim ok". It may be called from any goroutine.
func (l *Lane) Outcomes() map[string]uint64 {
	l.tallied.Lock()
	defer l.tallied.Unlock()
	all := make(map[string]uint64, len(l.outcomes))
	for kind, t := range l.outcomes {
		all[kind.Command.String()+" "+kind.Result()] = t.count
	}
	return all
}
