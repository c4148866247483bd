package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Requests that arrive faster than they are parsed wait in the subscriptions. All endpoints together keep at most
// pendingBytes of payload: each has a fixed share, so that a flood on one endpoint drops requests of that one only. The
// shares bound the number of messages, too, because a message costs some 400 bytes besides its payload.
const (
	pendingBytes = 256 << 20
	// busyWeight is the weight of an endpoint that a shop's customers cause load on, and of that for imports, whose requests
	// are large. All others have weight 1.
	busyWeight = 5
	// pendingEach is how many bytes of a share count as one message.
	pendingEach = 1 << 10
)

// weight is the endpoint's weight in the division of the pending budget.
func (e *endpoint) weight() int {
	if e.busy {
		return busyWeight
	}
	return 1
}

// pendingLimits is the share of the pending budget of each of the endpoint's two subjects.
func (e *endpoint) pendingLimits() (messages, bytes int) {
	all := 0
	for i := range endpoints {
		all += 2 * endpoints[i].weight()
	}
	bytes = pendingBytes / all * e.weight()
	return bytes / pendingEach, bytes
}

// instance is one server of the NATS micro service (the protocol of nats.go/micro, ADR-32). The library's own AddService
// answers $SRV requests on any reply subject, with the permissions of this connection; here every answer passes topology.MayReply
// first. The types on the wire are the library's.
type instance struct {
	s    *Service
	info micro.Info
	subs []*nats.Subscription
	// of endpoint number i are subscriptions 2i and 2i + 1: for clients in the servers' account, and for all others

	mu    sync.Mutex
	stats micro.Stats
}

// serve registers the service and its endpoints.
func (s *Service) serve() (*instance, error) {
	id := micro.ServiceIdentity{Name: Name, ID: uuid.NewString(), Version: s.opts.Version, Metadata: map[string]string{
		"version": s.opts.Version, "log": s.log.UUID, "lanes": strconv.Itoa(s.log.Lanes), "sync": s.opts.Sync,
	}}
	in := &instance{
		s:     s,
		info:  micro.Info{ServiceIdentity: id, Type: micro.InfoResponseType, Description: "coupons: claim, redeem, expire, remind"},
		stats: micro.Stats{ServiceIdentity: id, Type: micro.StatsResponseType, Started: time.Now().UTC()},
	}
	for i := range endpoints {
		if err := in.endpoint(i); err != nil {
			return nil, errors.Join(fmt.Errorf("registering endpoint %s: %w", endpoints[i].subject, err), in.stop())
		}
	}
	for verb, answer := range map[micro.Verb]func() any{
		micro.PingVerb:  func() any { return micro.Ping{ServiceIdentity: id, Type: micro.PingResponseType} },
		micro.InfoVerb:  func() any { return in.info },
		micro.StatsVerb: func() any { return in.statistics() },
	} {
		for _, of := range [][2]string{{}, {Name, ""}, {Name, id.ID}} {
			if err := in.discovery(verb, of[0], of[1], answer); err != nil {
				return nil, errors.Join(fmt.Errorf("registering the micro service %s: %w", Name, err), in.stop())
			}
		}
	}
	return in, nil
}

// endpoint subscribes to the subjects of endpoint number i. Each has a goroutine of its own.
func (in *instance) endpoint(i int) error {
	e, stats := &endpoints[i], &micro.EndpointStats{}
	stats.Name, stats.Subject, stats.QueueGroup = e.name, e.subject, Name
	in.stats.Endpoints = append(in.stats.Endpoints, stats)
	about := map[string]string{"takes": e.takes}
	if e.several() {
		about["lines"] = strconv.Itoa(wire.MaxMessageLines)
	}
	in.info.Endpoints = append(in.info.Endpoints, micro.EndpointInfo{Name: e.name, Subject: e.subject, QueueGroup: Name, Metadata: about})
	for _, subject := range []string{e.subject, access.GuestSubjectOf(e.subject)} {
		sub, err := in.s.nc.QueueSubscribe(subject, Name, func(m *nats.Msg) {
			start := time.Now()
			in.s.handle(i, m)
			in.mu.Lock()
			stats.NumRequests++
			stats.ProcessingTime += time.Since(start)
			in.mu.Unlock()
		})
		if err != nil {
			return err
		}
		in.subs = append(in.subs, sub)
		if err := sub.SetPendingLimits(e.pendingLimits()); err != nil {
			return err
		}
	}
	return nil
}

// discovery answers one verb for all services, those of this name, or this instance.
func (in *instance) discovery(verb micro.Verb, name, id string, answer func() any) error {
	subject, err := micro.ControlSubject(verb, name, id)
	if err != nil {
		return err
	}
	sub, err := in.s.nc.Subscribe(subject, func(m *nats.Msg) {
		if !topology.MayReply(m.Reply) {
			if m.Reply != "" {
				in.s.metrics.refusedDiscovery.Inc()
			}
			return
		}
		body, err := json.Marshal(answer())
		if err == nil {
			err = in.s.nc.Publish(m.Reply, body)
		}
		if err != nil {
			in.s.opts.Logger.Warn("a request for the service's description was not answered", "subject", m.Subject, "err", err)
		}
	})
	if err == nil {
		in.subs = append(in.subs, sub)
	}
	return err
}

// statistics returns the counts so far. Errors are requests that were dropped because they arrived too fast.
func (in *instance) statistics() micro.Stats {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := in.stats
	all.Endpoints = nil
	for i, stats := range in.stats.Endpoints {
		one := *stats
		if one.NumRequests > 0 {
			one.AverageProcessingTime = one.ProcessingTime / time.Duration(one.NumRequests)
		}
		if dropped := in.dropped(i); dropped > 0 {
			one.NumErrors, one.LastError = dropped, nats.ErrSlowConsumer.Error()
		}
		all.Endpoints = append(all.Endpoints, &one)
	}
	return all
}

// dropped returns how many requests of endpoint number i arrived when its share was used up.
func (in *instance) dropped(i int) int {
	all := 0
	for _, sub := range in.subs[2*i : 2*i+2] {
		if n, err := sub.Dropped(); err == nil { // an error: the subscription is closed
			all += n
		}
	}
	return all
}

// stop accepts no more requests. Those that were delivered are still handled.
func (in *instance) stop() error {
	var problems error
	for _, sub := range in.subs {
		if err := sub.Drain(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			problems = errors.Join(problems, fmt.Errorf("draining %s: %w", sub.Subject, err))
		}
	}
	return problems
}
