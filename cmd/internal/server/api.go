package server

import (
	"context"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
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
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	rates := web.NewRates(func() web.Rate {
		now, _ := s.config.Current()
		return web.Rate{PerSecond: now.HTTPRate, Burst: now.HTTPBurst}
	}, s.metrics.registry)
	opts := service.Options{
		Version: semver(s.opts.Version), Sync: s.opts.Sync, Logger: s.log,
		Keys: s.keys.registry, KeyStore: s.keys.store, Settings: s.settings, Audit: s.keys.audit, Rate: rates.Take,
		Status:      func(ctx context.Context) (any, error) { return s.readStatus(ctx, js) },
		DeadLetters: s.listLetters,
	}
	if s.tables != nil {
		opts.History = readmodel.NewHistory(s.tables.pool, func(ctx context.Context, lane int, sequence uint64) (eventlog.Raw, error) {
			return eventlog.Events(js, lane).In(s.stream).Lookup(ctx, sequence)
		})
	}
	svc := service.New(nc, s.stream, code.New(s.key), opts)
	if err := s.metrics.registry.Register(svc); err != nil {
		return err
	}
	s.group.start("api", svc.Run)
	if err := s.startV1(js, rates); err != nil {
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

// readStatus reads the status of the log and its servers, for NATS and HTTP.
func (s *server) readStatus(ctx context.Context, js jetstream.JetStream) (*status.Status, error) {
	from := status.Source{NC: js.Conn(), JS: js, Log: s.stream}
	if s.tables != nil {
		from.Letters = readmodel.NewLetters(s.tables.pool)
	} else {
		from.NoLetters = api.ErrNoTables.Error()
	}
	st, err := status.Read(ctx, from)
	if err != nil {
		return nil, err
	}
	st.Sync, st.NATS = s.opts.Sync, natsx.WithoutUser(js.Conn().ConnectedUrl())
	return st, nil
}

// listLetters lists dead letters, for NATS.
func (s *server) listLetters(ctx context.Context, q service.LetterQuery) (any, error) {
	if s.tables == nil {
		return nil, api.ErrNoTables
	}
	f := readmodel.LetterFilter{Stream: q.Stream, Lane: q.Lane, Since: q.Since, State: readmodel.LetterState(q.State), Limit: q.Limit, Before: q.Before, Masked: q.Masked}
	if err := f.Check(); err != nil {
		return nil, service.Invalid(err)
	}
	list, older, err := readmodel.NewLetters(s.tables.pool).List(ctx, f)
	return readmodel.LetterPage{Letters: append([]readmodel.Letter{}, list...), Next: older}, err
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
