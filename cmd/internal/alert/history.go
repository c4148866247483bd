package alert

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// separator is between the values of two labels in the name of a group.
const separator = "\x00"

// join is the name of a group.
func join(values ...string) string { return strings.Join(values, separator) }

// value is what a group of a series has at an instant.
type value struct{ sum, min, max float64 }

// point is a series at an instant, by group.
type point struct {
	at time.Time
	of map[string]value
}

// history has the series that conditions look at, each for as long as one of them looks back.
type history struct {
	at      time.Time // of the last points
	begin   time.Time // from when on counters are known to be 0 where they are absent
	nowhere map[string]int
	names   map[string][]series // of the series of a metric
	within  map[series]time.Duration
	points  map[series][]point // oldest first
}

func newHistory(rules []Rule, begin time.Time) *history {
	h := &history{begin: begin, names: map[string][]series{}, within: map[series]time.Duration{}, points: map[series][]point{}}
	for _, r := range rules {
		for _, s := range r.When.reads() {
			if s.metric != "" {
				h.within[s.series] = max(h.within[s.series], s.within)
			}
		}
	}
	for s := range h.within {
		name, _, _ := strings.Cut(s.metric, "{")
		h.names[name] = append(h.names[name], s)
	}
	return h
}

// add takes in the metrics of an instant.
func (h *history) add(at time.Time, families []*dto.MetricFamily, nowhere map[string]int) {
	h.at, h.nowhere = at, nowhere
	now := map[series]map[string]value{}
	for s := range h.within {
		now[s] = map[string]value{}
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if m.Histogram == nil {
				h.count(now, f.GetName(), m.Label, "", m.Counter.GetValue()+m.Gauge.GetValue())
				continue
			}
			for _, b := range m.Histogram.Bucket {
				h.count(now, f.GetName()+"_bucket", m.Label, strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64), float64(b.GetCumulativeCount()))
			}
			h.count(now, f.GetName()+"_bucket", m.Label, "+Inf", float64(m.Histogram.GetSampleCount()))
		}
	}
	for s, of := range now {
		kept := slices.DeleteFunc(h.points[s], func(p point) bool { return at.Sub(p.at) > h.within[s] })
		h.points[s] = append(kept, point{at, of})
	}
}

// count adds a value to the groups of the series that have its metric.
func (h *history) count(now map[series]map[string]value, metric string, labels []*dto.LabelPair, le string, n float64) {
	for _, s := range h.names[metric] {
		var group []string
		if s.by != "" {
			for by := range strings.SplitSeq(s.by, ", ") {
				group = append(group, label(labels, by, le))
			}
		}
		if _, matcher, has := strings.Cut(s.metric, "{"); has {
			name, want, _ := strings.Cut(strings.TrimSuffix(matcher, `"}`), `="`)
			if label(labels, name, le) != want {
				continue
			}
		}
		name := join(group...)
		if v, known := now[s][name]; known {
			now[s][name] = value{v.sum + n, min(v.min, n), max(v.max, n)}
		} else {
			now[s][name] = value{n, n, n}
		}
	}
}

// label is the value of a label, "" = it has none.
func label(labels []*dto.LabelPair, name, le string) string {
	if name == "le" {
		return le
	}
	for _, l := range labels {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// last is the newest point of a series.
func (h *history) last(s series) point {
	if all := h.points[s]; len(all) > 0 {
		return all[len(all)-1]
	}
	return point{}
}

// now is what a group has, zero if it is absent.
func (h *history) now(s series, group string) value { return h.last(s).of[group] }

// any is true if a fact is true of a group of the newest point.
func (h *history) any(s series, fact func(group string, v value) bool) bool {
	of := h.last(s).of
	return slices.ContainsFunc(slices.Collect(maps.Keys(of)), func(group string) bool { return fact(group, of[group]) })
}

// grown is by how much a counter grew within a span. Where it was absent it was 0; a kept one was what it is first.
func (h *history) grown(s series, group string, within time.Duration, kept bool) float64 {
	first, known := 0., !kept && h.at.Sub(h.begin) <= within
	for _, p := range h.points[s] {
		if known || h.at.Sub(p.at) > within {
			continue
		}
		if v, has := p.of[group]; has || !kept {
			first, known = v.sum, true
		}
	}
	return max(0, h.now(s, group).sum-first)
}
