package server

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/sample"
	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/once"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/service"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

// startAPI starts the service that answers requests. On an external NATS it also starts a forwarder, which does the work
// of the subject mapping if that is missing.
func (s *server) startAPI(ctx context.Context) error {
	if !s.opts.has(RoleAPI) {
		return nil
	}
	js, err := s.jetStream(ctx, "api")
	if err != nil {
		return err
	}
	nc := js.Conn()
	if s.natsd == nil {
		f := service.NewForwarder(nc, s.stream.Lanes, s.log)
		if err := s.metrics.registry.Register(f); err != nil {
			return err
		}
		s.group.start("forwarder", f.Run)
	}
	rates := web.NewRates(func() web.Rate {
		now, _ := s.config.Current()
		return web.Rate{PerSecond: now.HTTPRate, Burst: now.HTTPBurst}
	}, s.metrics.registry)
	lanes := command.New(nc, command.Options{Count: s.stream.Lanes, Codec: code.New(s.key)})
	people := s.newOps(js, lanes)
	opts := service.Options{
		Version: semver(s.opts.Version), Sync: s.opts.Sync, Logger: s.log,
		Keys: s.keys.registry, Ops: people, Cursors: people.Cursors, Audit: s.keys.audit, Rate: rates.Take,
	}
	if s.tables != nil {
		history := readmodel.NewHistory(s.tables.pool, func(ctx context.Context, lane int, sequences []uint64, each func(uint64, eventlog.Raw, error)) {
			eventlog.Events(js, lane).In(s.stream).LookupAll(ctx, sequences, each)
		})
		opts.History, people.Reminders, people.Changes = history, history, history
	}
	svc := service.New(nc, s.stream, code.New(s.key), opts)
	if err := s.metrics.registry.Register(svc); err != nil {
		return err
	}
	s.group.start("api", svc.Run)
	if err := s.startV1(js, rates, people, lanes); err != nil {
		return err
	}
	s.health.add("api", true, func() (bool, any) {
		select {
		case <-svc.Ready():
			return nc.IsConnected(), nil
		default:
			return false, nil
		}
	})
	return nil
}

// newOps returns what actions of people work with.
func (s *server) newOps(js jetstream.JetStream, lanes *command.Lanes) *ops.Ops {
	hooks := webhook.Open(js, webhook.NewKey(s.key, s.stream.UUID), registry.Options{Logger: s.log, Audit: s.keys.audit})
	hooks.Reach = s.webhookGuard().Reach
	s.startSampler(js)
	all := &ops.Ops{
		Keys: s.keys.store, Settings: s.settings, Webhooks: hooks, Audit: s.keys.audit, Queries: client.New(js.Conn(), client.Options{}),
		Status: func(ctx context.Context) (any, error) { return s.readStatus(ctx, js) }, Jobs: s.jobs, PostgresURL: s.analystURL, Lanes: lanes, Wrong: s.keys.registry.Wrong,
		JetStream: js, Log: s.stream, Overview: func() any { return s.sampler.Overview(time.Now()) },
		Cursors: ops.Cursors{Secret: s.key, Log: s.stream.UUID},
		Once:    once.Open(js, s.key, s.stream.UUID),
	}
	if key, err := s.maskKey(); err == nil {
		all.MaskCustomer = replay.NewMask(key, false, true).Customer
	}
	if s.tables != nil {
		all.Letters = newLetters(s.tables.pool, js, lanes)
		all.Coupons, s.jobs.Work[ops.CouponsJob] = readmodel.NewCoupons(s.tables.pool), all.ChangeCoupons
	}
	return all
}

// startSampler starts what takes samples.
func (s *server) startSampler(js jetstream.JetStream) {
	s.sampler = sample.New(sample.Options{Conn: js.Conn(), Lanes: s.stream.Lanes, Disks: disks(s.places()).now, Metrics: s.metrics.registry, Logger: s.log})
	s.group.start("sampler", s.sampler.Run)
}

// readStatus reads the status of the log and its servers.
func (s *server) readStatus(ctx context.Context, js jetstream.JetStream) (any, error) {
	var letters *readmodel.Letters
	if s.tables != nil {
		letters = readmodel.NewLetters(s.tables.pool)
	}
	st, err := status.Read(ctx, js, s.stream, letters)
	if err != nil {
		return nil, err
	}
	now := s.sampler.Overview(time.Now())
	st.Sync, st.DiskLeft, st.DiskFull = s.opts.Sync, now.DiskLeft, now.FullIn
	return st, nil
}

var semantic = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// semver is the version in the form that NATS micro services require, "" if it has another form.
func semver(version string) string {
	version = strings.TrimPrefix(version, "v")
	if semantic.MatchString(version) {
		return version
	}
	return ""
}
