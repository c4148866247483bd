package server

import (
	"context"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/projections/history"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/service"
)

// startAPI starts the service that answers requests. On an external NATS it also starts a forwarder, which does the work
// of the subject mapping if that is missing.
func (s *server) startAPI(ctx context.Context) error {
	if !s.opts.has(RoleAPI) {
		return nil
	}
	nc, err := s.connect(ctx, "api")
	if err != nil {
		return err
	}
	if s.natsd == nil {
		f := service.NewForwarder(nc, s.stream.Lanes, s.log)
		if err := s.metrics.registry.Register(f); err != nil {
			return err
		}
		s.group.start("forwarder", f.Run)
	}
	opts := service.Options{
		Version: semver(s.opts.Version), Sync: s.opts.Sync, Logger: s.log,
		Keys: s.keys.registry, KeyStore: s.keys.store, Settings: s.settings, Audit: s.keys.audit,
	}
	if s.tables != nil {
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		opts.History = history.New(s.tables.pool, func(ctx context.Context, lane int, sequence uint64) (eventlog.Raw, error) {
			return eventlog.Events(js, lane).In(s.stream).Lookup(ctx, sequence)
		})
	}
	svc := service.New(nc, s.stream, code.New(s.key), opts)
	if err := s.metrics.registry.Register(svc); err != nil {
		return err
	}
	s.group.start("api", svc.Run)
	if err := s.startV1(nc); err != nil {
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

var semantic = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// semver is the version in the form that NATS micro services require, "" if it has another form.
func semver(version string) string {
	version = strings.TrimPrefix(version, "v")
	if semantic.MatchString(version) {
		return version
	}
	return ""
}
