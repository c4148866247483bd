package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/once"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// startV1 adds HTTP /v1 to the server, which has been listening since the start.
func (s *server) startV1(js jetstream.JetStream, rates *web.Rates, people *ops.Ops, lanes *command.Lanes) error {
	mask, err := s.maskKey()
	if err != nil {
		return err
	}
	sessions := &web.Sessions{}
	s.keys.registry.Watch(sessions.Revoke)
	gate := &web.Gate{Keys: audited{s.keys.registry, s, "http"}, Owner: s.owns, Rates: rates, Tokens: once.Open(js, s.key, s.stream.UUID)}
	opts := api.Options{
		Gate: gate, Log: s.stream, JS: js, Lanes: lanes, Queries: people.Queries, Ops: people,
		MaskKey: mask, Sessions: sessions, Wrong: s.keys.registry.Wrong, Audit: s.keys.audit,
		Logger: s.log,
	}
	if s.tables != nil {
		opts.DB = s.tables.pool
	}
	mux := http.NewServeMux()
	api := api.New(mux, opts)
	s.limits.add(api.Limits)
	for _, rest := range rests {
		mux.HandleFunc(rest, func(w http.ResponseWriter, r *http.Request) { notRouted(mux, w, r) })
	}
	served := drain(mux)
	s.group.start("v1", func(ctx context.Context) error {
		defer people.Queries.Close()
		return served.run(ctx, api.Stop, lanes.Run)
	})
	s.v1.Store(served)
	return nil
}

// serveV1 answers for /v1, also while it is not started.
func (s *server) serveV1(w http.ResponseWriter, r *http.Request) {
	v1 := s.v1.Load()
	if v1 == nil {
		web.New(web.Unavailable, "this server is starting, or has no role api").Write(w)
		return
	}
	v1.ServeHTTP(w, r)
}

// rests are the patterns of what no route takes.
var rests = []string{"/v1", "/v1/"}

// notRouted answers a request that no route takes: in the form of all errors.
func notRouted(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	probe := *r
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe.Method = method
		if _, pattern := mux.Handler(&probe); !slices.Contains(rests, pattern) {
			w.Header().Add("Allow", method)
		}
	}
	if allowed := w.Header()["Allow"]; len(allowed) > 0 {
		web.New(web.MethodNotAllowed, r.Method+" is not for "+r.URL.Path).Write(w)
		return
	}
	web.New(web.NotFound, "there is no route "+r.URL.Path+"; GET /v1/openapi.json lists them").Write(w)
}
