package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// conditionEvery is how often the log's streams are compared with those that scrip makes, and conditionWait bounds it once.
	conditionEvery = time.Minute
	conditionWait  = 30 * time.Second
)

// restartNode is what to do about a node that lags: nats-server may not resume after its disk was full.
const restartNode = "restart that nats-server, after a look at its log and disk; another node that fails may stop the log"

// condition watches the settings of the log's streams, and the nodes of NATS that have copies. Others can change them at any time, and
// what is removed is gone. Every server looks, so that none depends on another; nothing is changed. A crash has no effect.
type condition struct {
	s  *server
	js jetstream.JetStream

	mu    sync.Mutex // guards the fields below
	now   topology.Condition
	known bool
	err   error // of the last look
}

// startCondition looks once, and then every minute. What is wrong with the log does not make the server unready: it can answer
// claims, and a load balancer must not take every server away.
func (s *server) startCondition(ctx context.Context) error {
	js, err := s.jetStream(ctx, "condition")
	if err != nil {
		return err
	}
	c := &condition{s: s, js: js}
	s.metrics.registry.MustRegister(c)
	s.health.add("log", false, c.checkLog)
	s.health.add("nodes", false, c.checkNodes)
	s.group.start("condition", func(ctx context.Context) error {
		for {
			c.look(ctx)
			if natsx.Pause(ctx, conditionEvery) != nil {
				return nil
			}
		}
	})
	return nil
}

// look reads the condition, and logs what has changed.
func (c *condition) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, conditionWait)
	defer cancel()
	now, err := c.s.stream.Condition(ctx, c.js)
	c.mu.Lock()
	was := c.now
	if c.err = err; err == nil {
		now.After(was)
		c.now, c.known = now, true
	}
	c.mu.Unlock()
	if err != nil {
		return // NATS is away, or a stream has no leader; others report that
	}
	changes(was.Dangers(), now.Dangers(), func(d string) {
		c.s.log.Error("the log is in danger; put its settings back at once", "because", d)
	}, func(d string) { c.s.log.Warn("the log is not in danger by this any more", "because", d) })
	changes(append(was.Differences(), c.s.stream.Drift...), now.Differences(), func(d string) { c.s.log.Warn(differs, "difference", d) }, func(string) {})
	changes(was.Behind(), now.Behind(), func(node string) {
		c.s.log.Warn("copies of the log on a node of NATS lack messages; "+restartNode, "node", node, "messages", now.Lag[node])
	}, func(node string) {
		c.s.log.Info("the copies of the log on a node of NATS are complete again", "node", node)
	})
}

// changes calls appeared and gone for what is only in now, or only was.
func changes(was, now []string, appeared, gone func(string)) {
	for _, one := range now {
		if !slices.Contains(was, one) {
			appeared(one)
		}
	}
	for _, one := range was {
		if !slices.Contains(now, one) {
			gone(one)
		}
	}
}

// seen returns the last condition; unknown is why there is none, "" = there is.
func (c *condition) seen() (now topology.Condition, unknown string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		unknown = "the log's streams cannot be read: " + c.err.Error()
	case !c.known:
		unknown = "the log's streams are not read yet"
	}
	return c.now, unknown
}

func (c *condition) checkLog() (bool, any) {
	now, unknown := c.seen()
	detail := map[string]any{"endangered": now.Endangered, "differ": now.Differ}
	switch dangers := now.Dangers(); {
	case len(dangers) > 0: // also if it cannot be read now
		detail["error"] = "the log is in danger: " + strings.Join(dangers, "; ") + ". Put the settings back at once"
		return false, detail
	case unknown != "":
		return false, map[string]any{"error": unknown}
	}
	return true, detail
}

func (c *condition) checkNodes() (bool, any) {
	now, unknown := c.seen()
	var behind []string
	for _, node := range now.Behind() {
		behind = append(behind, fmt.Sprintf("copies of the log on %s lack %d messages: %s", node, now.Lag[node], restartNode))
	}
	switch {
	case len(behind) > 0:
		return false, map[string]any{"error": strings.Join(behind, "; "), "lag": now.Lag}
	case unknown != "":
		return false, map[string]any{"error": unknown}
	}
	return true, map[string]any{"lag": now.Lag}
}

var (
	endangeredDesc = prometheus.NewDesc("scrip_log_endangered",
		"Streams of the log whose settings can remove messages or keep new ones out, or that have lost some; read every minute; while unknown the last one above 0, or absent.", nil, nil)
	differDesc = prometheus.NewDesc("scrip_log_settings_differ",
		"Streams of the log with other settings than scrip gives them, which remove nothing; read every minute; while unknown the last one above 0, or absent.", nil, nil)
	fullDesc = prometheus.NewDesc("scrip_log_stream_full",
		"What part of its bound a stream of the log uses, of those that have one, 0 to 1; read every minute; while unknown the last one above 0, or absent. A full one refuses new messages.", []string{"stream"}, nil)
	lagDesc = prometheus.NewDesc("scrip_nats_node_lag",
		"Messages that the copies on a node of NATS lack, of all streams of the log; read every minute; while unknown the last one above 0, or absent, as where NATS is no cluster.", []string{"node"}, nil)
)

// Describe and Collect make it a prometheus.Collector.
func (c *condition) Describe(ch chan<- *prometheus.Desc) {
	ch <- endangeredDesc
	ch <- differDesc
	ch <- fullDesc
	ch <- lagDesc
}

func (c *condition) Collect(ch chan<- prometheus.Metric) {
	now, unknown := c.seen()
	gauge := func(desc *prometheus.Desc, value float64, label ...string) {
		if unknown == "" || value > 0 { // a danger does not end because nothing can be read
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, label...)
		}
	}
	gauge(endangeredDesc, float64(len(now.Endangered)))
	gauge(differDesc, float64(len(now.Differ)))
	for stream, part := range now.Full {
		gauge(fullDesc, part, stream)
	}
	for _, node := range slices.Sorted(maps.Keys(now.Lag)) {
		gauge(lagDesc, float64(now.Lag[node]), node)
	}
}
