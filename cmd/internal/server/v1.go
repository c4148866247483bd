package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/console"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/seal"
)

// startV1 adds HTTP /v1 to the server, which has been listening since the start.
func (s *server) startV1(js jetstream.JetStream, rates *web.Rates, people *ops.Ops, lanes *command.Lanes) error {
	mask, err := s.maskKey()
	if err != nil {
		return err
	}
	sessions := &web.Sessions{}
	s.keys.registry.Watch(sessions.Revoke)
	gate := &web.Gate{Keys: audited{s.keys.registry, s, "http"}, Owner: s.owns, Rates: rates, Tokens: people.Once}
	opts := api.Options{
		Gate: gate, Log: s.stream, JS: js, Lanes: lanes, Queries: people.Queries, Ops: people,
		MaskKey: mask, Sessions: sessions, Wrong: s.keys.registry.Wrong, Audit: s.keys.audit,
		Prefix: s.opts.HTTPPrefix, Logger: s.log,
	}
	if s.trace != nil {
		opts.Trace = s.trace.Command
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
	if !s.opts.NoConsole {
		s.console.Store(console.New(console.Options{V1: served, API: api, Sessions: sessions,
			LogIns: s.logIns(gate), Prefix: s.opts.HTTPPrefix, Version: s.opts.Version, Logger: s.log}))
	}
	return nil
}

// logIns are the sessions of browsers.
func (s *server) logIns(gate *web.Gate) *web.LogIns {
	sum := sha256.Sum256([]byte(s.credentials.String()))
	of := *gate
	of.Keys = s.keys.registry // a log-in is recorded as one to the console, not as a use over HTTP
	return &web.LogIns{Gate: &of, Box: seal.NewBox(s.key, s.stream.UUID, "scrip log-ins v1"), Owner: hex.EncodeToString(sum[:12]), Secure: s.certs != nil,
		Record: func(p access.Principal, from string) { s.loggedIn(p, "console", from) }}
}

// serveConsole serves a page of the console.
func (s *server) serveConsole(w http.ResponseWriter, r *http.Request) {
	switch c := s.console.Load(); {
	case c != nil:
		c.ServeHTTP(w, r)
	case s.opts.NoConsole || !s.opts.has(RoleAPI):
		web.New(web.NotFound, "this server has no console: it was started with --console=false, or without role api").Write(w)
	default:
		web.New(web.Unavailable, "this server is starting").Write(w)
	}
}

// prefixed serves what is under the prefix as if it were not, and all else as it is: probes and clients on this machine need no prefix.
func (s *server) prefixed(next http.Handler) http.Handler {
	if s.opts.HTTPPrefix == "" {
		return next
	}
	within := http.StripPrefix(s.opts.HTTPPrefix, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.EscapedPath(); {
		case path == s.opts.HTTPPrefix:
			http.Redirect(w, r, path+"/", http.StatusPermanentRedirect)
		case strings.HasPrefix(path, s.opts.HTTPPrefix+"/"):
			within.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
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
