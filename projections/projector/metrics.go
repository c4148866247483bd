package projector

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

func described(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("scrip_projection_"+name, help, []string{"lane"}, nil)
}

var (
	lagDesc       = described("lag_seconds", "Age of the newest event in the read tables while more events follow it in the log, else 0.")
	behindDesc    = described("behind_messages", "Event messages in the log that are not in the read tables yet, as far as known.")
	positionDesc  = described("position", "Sequence of the last event message in the read tables.")
	followingDesc = described("following", "1 while the lane is projected, 0 while it waits, stands by or has stopped.")
	stoppedDesc   = described("stopped", "1 when the lane is not projected until somebody acts.")
	eventsDesc    = described("events_total", "Event lines applied to the read tables.")
	poisonDesc    = described("poison_total", "Event lines parked as dead letters because they could not be applied.")
	foreignDesc   = described("foreign_total", "Messages in the event stream that scrip did not write, passed over.")
	batchesDesc   = described("batches_total", "Transactions committed.")
)

// Describe and Collect make a Projector a prometheus.Collector; register it.
func (p *Projector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{lagDesc, behindDesc, positionDesc, followingDesc, stoppedDesc, eventsDesc, poisonDesc, foreignDesc, batchesDesc} {
		ch <- d
	}
}

// Collect is described at Describe.
func (p *Projector) Collect(ch chan<- prometheus.Metric) {
	for _, now := range p.Progress() {
		lane := strconv.Itoa(now.Lane)
		send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
			ch <- prometheus.MustNewConstMetric(d, kind, v, lane)
		}
		send(lagDesc, prometheus.GaugeValue, now.Lag.Seconds())
		send(behindDesc, prometheus.GaugeValue, float64(now.Behind))
		send(positionDesc, prometheus.GaugeValue, float64(now.Sequence))
		send(followingDesc, prometheus.GaugeValue, truth(now.State == Following))
		send(stoppedDesc, prometheus.GaugeValue, truth(now.State == Stopped))
		send(eventsDesc, prometheus.CounterValue, float64(now.Events))
		send(poisonDesc, prometheus.CounterValue, float64(now.Parked))
		send(foreignDesc, prometheus.CounterValue, float64(now.Foreign))
		send(batchesDesc, prometheus.CounterValue, float64(now.Batches))
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
