package alert

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Condition is when an alert fires, as data.
type Condition interface {
	// promQL is the condition for Prometheus.
	promQL() string
	// reads are the series that it looks at, and for how long it looks back.
	reads() []read
	// holds judges the metrics of one server.
	holds(h *history) bool
}

// read is what a condition looks at.
type read struct {
	series
	within time.Duration
}

// series is a metric, perhaps with one matcher, and the labels by which it is grouped: instance is the server's own, which
// Prometheus adds.
type series struct {
	metric string // such as scrip_requests_total{result="failed"}
	by     string // labels with a comma between two; "" = one group
}

// of is a series.
func of(metric string, by ...string) series { return series{metric, strings.Join(by, ", ")} }

// grouped is an aggregation of an expression by the labels of a series.
func (s series) grouped(op, expression string) string {
	if s.by == "" {
		return op + "(" + expression + ")"
	}
	return op + " by (" + s.by + ") (" + expression + ")"
}

// Above is a gauge whose greatest value in a group is above a bound.
type Above struct {
	Of    series
	Bound float64
}

func (c Above) promQL() string { return c.Of.grouped("max", c.Of.metric) + " > " + number(c.Bound) }
func (c Above) reads() []read  { return []read{{series: c.Of}} }
func (c Above) holds(h *history) bool {
	return h.any(c.Of, func(_ string, v value) bool { return v.max > c.Bound })
}

// Below is a gauge whose least value in a group is below a bound, as a share of another one if Whole has a metric.
type Below struct {
	Of, Whole series
	Bound     float64
}

func (c Below) promQL() string {
	what := c.Of.metric
	if c.Whole.metric != "" {
		what += " / " + c.Whole.metric
	}
	return c.Of.grouped("min", what) + " < " + number(c.Bound)
}

func (c Below) reads() []read { return []read{{series: c.Of}, {series: c.Whole}} }

func (c Below) holds(h *history) bool {
	return h.any(c.Of, func(group string, v value) bool {
		if c.Whole.metric == "" {
			return v.min < c.Bound
		}
		return v.min < c.Bound*h.now(c.Whole, group).min
	})
}

// Exceeds is a gauge above another one, which is the limit; 0 = there is no limit.
type Exceeds struct{ Of, Limit series }

func (c Exceeds) promQL() string {
	return c.Of.grouped("max", c.Of.metric) + " > (" + c.Limit.grouped("max", c.Limit.metric) + " > 0)"
}
func (c Exceeds) reads() []read { return []read{{series: c.Of}, {series: c.Limit}} }
func (c Exceeds) holds(h *history) bool {
	return h.any(c.Of, func(group string, v value) bool {
		limit := h.now(c.Limit, group).max
		return limit > 0 && v.max > limit
	})
}

// Until is a time, in seconds since 1970, that comes within a span or has passed.
type Until struct {
	Of     series
	Within time.Duration
}

func (c Until) promQL() string {
	return c.Of.grouped("min", c.Of.metric) + " - time() < " + number(c.Within.Seconds())
}
func (c Until) reads() []read { return []read{{series: c.Of}} }
func (c Until) holds(h *history) bool {
	return h.any(c.Of, func(_ string, v value) bool { return v.min-float64(h.at.Unix()) < c.Within.Seconds() })
}

// Grew is a counter that grew by more than Most within a span.
//
// A counter counts from its process's start, so its first value is growth too: Prometheus sees none in a counter that appears
// with its first event. That counts only where the server was scraped at the begin of the span already: else everything that was
// ever counted would be an alert after a gap of Prometheus. The first value of a Kept counter, which is stored with the log, is
// no growth.
type Grew struct {
	Of     series
	Within time.Duration
	Most   float64
	Kept   bool
}

func (c Grew) promQL() string {
	span := duration(c.Within)
	if c.Kept { // each server has the same one
		grew := series{by: c.Of.by + ", instance"}.grouped("sum", "increase("+c.Of.metric+"["+span+"])")
		return c.Of.grouped("max", grew) + " > " + number(c.Most)
	}
	grew := c.Of.grouped("sum", "increase("+c.Of.metric+"["+span+"])") + " > " + number(c.Most)
	if c.Most > 0 {
		return grew
	}
	first := fmt.Sprintf("%[1]s unless %[1]s offset %[2]s and on (instance, job) up offset %[2]s", c.Of.metric, span)
	return grew + " or " + c.Of.grouped("sum", first) + " > 0"
}
func (c Grew) reads() []read { return []read{{c.Of, c.Within}} }
func (c Grew) holds(h *history) bool {
	return h.any(c.Of, func(group string, _ value) bool { return h.grown(c.Of, group, c.Within, c.Kept) > c.Most })
}

// Faster is a counter that grew by more than PerSecond each second of a span.
type Faster struct {
	Of        series
	Within    time.Duration
	PerSecond float64
}

func (c Faster) promQL() string {
	return c.Of.grouped("sum", "rate("+c.Of.metric+"["+duration(c.Within)+"])") + " > " + number(c.PerSecond)
}
func (c Faster) reads() []read { return []read{{c.Of, c.Within}} }
func (c Faster) holds(h *history) bool {
	return h.any(c.Of, func(group string, _ value) bool {
		return h.grown(c.Of, group, c.Within, false) > c.PerSecond*c.Within.Seconds()
	})
}

// Quantile is a quantile of what a histogram counted within a span, above a bound.
type Quantile struct {
	Of     series
	Q      float64
	Within time.Duration
	Bound  float64
}

// buckets are the series of the histogram's buckets.
func (c Quantile) buckets() series { return of(c.Of.metric+"_bucket", c.Of.by, "le") }

func (c Quantile) promQL() string {
	b := c.buckets()
	return fmt.Sprintf("histogram_quantile(%s, %s) > %s", number(c.Q), b.grouped("sum", "rate("+b.metric+"["+duration(c.Within)+"])"), number(c.Bound))
}
func (c Quantile) reads() []read { return []read{{c.buckets(), c.Within}} }

// holds is true if more than the share that the quantile leaves took longer than the bound. In the bucket of the bound all values
// are taken for evenly distributed, as Prometheus does.
func (c Quantile) holds(h *history) bool {
	type bucket struct{ below, above, upTo, all float64 } // the bounds beside the bound, and what is below them
	groups := map[string]*bucket{}
	b := c.buckets()
	h.any(b, func(group string, _ value) bool {
		labels := strings.Split(group, separator)
		le, err := strconv.ParseFloat(labels[len(labels)-1], 64)
		if err != nil {
			return false
		}
		name := strings.Join(labels[:len(labels)-1], separator)
		g := groups[name]
		if g == nil {
			g = &bucket{above: math.Inf(1)}
			groups[name] = g
		}
		n := h.grown(b, group, c.Within, false)
		switch {
		case math.IsInf(le, 1):
			g.all = n
		case le <= c.Bound && le >= g.below:
			g.below, g.upTo = le, n
		}
		if le > c.Bound {
			g.above = min(g.above, le)
		}
		return false
	})
	for name, g := range groups {
		within := g.upTo
		if !math.IsInf(g.above, 1) {
			upper := join(name, strconv.FormatFloat(g.above, 'g', -1, 64))
			within += (h.grown(b, upper, c.Within, false) - g.upTo) * (c.Bound - g.below) / (g.above - g.below)
		}
		if g.all > 0 && within < c.Q*g.all {
			return true
		}
	}
	return false
}

// Nowhere is work that each server reports as its own, 1, or as another's, 0: no server does that of a group. One server knows that
// by the others' reports, not by its metrics.
type Nowhere struct{ Of series }

func (c Nowhere) promQL() string        { return c.Of.grouped("sum", c.Of.metric) + " == 0" }
func (c Nowhere) reads() []read         { return nil }
func (c Nowhere) holds(h *history) bool { return h.nowhere[c.Of.metric] > 0 }

// Without is a part that works, in a group in which another does not.
type Without struct{ Of, Other series }

func (c Without) promQL() string {
	return fmt.Sprintf("(%s > 0) unless on (%s) (%s > 0)", c.Of.grouped("sum", c.Of.metric), c.Of.by, c.Other.grouped("max", c.Other.metric))
}
func (c Without) reads() []read { return []read{{series: c.Of}, {series: c.Other}} }
func (c Without) holds(h *history) bool {
	return h.any(c.Of, func(group string, v value) bool { return v.sum > 0 && h.now(c.Other, group).max <= 0 })
}

// Either holds if one of several does.
type Either []Condition

func (c Either) promQL() string {
	var all []string
	for _, one := range c {
		all = append(all, one.promQL())
	}
	return strings.Join(all, " or ")
}

func (c Either) reads() (all []read) {
	for _, one := range c {
		all = append(all, one.reads()...)
	}
	return all
}

func (c Either) holds(h *history) bool {
	for _, one := range c {
		if one.holds(h) {
			return true
		}
	}
	return false
}

// Elsewhere is PromQL of what no server sees of itself.
type Elsewhere string

func (c Elsewhere) promQL() string      { return string(c) }
func (c Elsewhere) reads() []read       { return nil }
func (c Elsewhere) holds(*history) bool { return false }

// number is a number in PromQL.
func number(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// duration is a duration in PromQL, of whole seconds.
func duration(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	case d%time.Minute == 0:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	}
	return strconv.Itoa(int(d/time.Second)) + "s"
}
