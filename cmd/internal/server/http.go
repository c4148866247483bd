package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"syscall"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
)

// httpStopWait is how long requests in flight may take when the server stops.
const httpStopWait = 2 * time.Second

// listenHTTP listens early, so that a port in use ends the start before any other part has started.
func listenHTTP(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use, perhaps by another scrip; stop that one or choose another address with --http-listen: %w", addr, err)
	}
	if err != nil {
		return nil, fmt.Errorf("HTTP cannot listen on %s; choose another address with --http-listen: %w", addr, err)
	}
	return l, nil
}

// handler serves the console, liveness, readiness without details, and, if no credentials are configured, metrics to every client. It
// serves details and profiles only to clients with the server's credentials.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"alive": true})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		s.writeReady(w, s.authorized(r))
	})
	mux.HandleFunc("/", s.serveConsole)
	mux.HandleFunc("/v1", s.serveV1)
	mux.HandleFunc("/v1/", s.serveV1)
	s.measure(mux, s.guarded)
	return mux
}

// measure adds metrics, which need the credentials where some are configured, and profiles, which guard guards:
//
//	curl -o cpu -u USER:PASSWORD 'http://127.0.0.1:8080/debug/pprof/profile?seconds=10' && go tool pprof cpu
func (s *server) measure(mux *http.ServeMux, guard func(http.Handler) http.Handler) {
	metrics := s.metrics.handler()
	if s.opts.Credentials != "" {
		metrics = s.guarded(metrics)
	}
	mux.Handle("GET /metrics", metrics)
	for path, profile := range map[string]http.HandlerFunc{"": pprof.Index, "profile": pprof.Profile, "trace": pprof.Trace} {
		mux.Handle("GET /debug/pprof/"+path, guard(briefly(profile)))
	}
}

// writeReady answers with the readiness, with or without its details.
func (s *server) writeReady(w http.ResponseWriter, details bool) {
	ready, status := s.health.readiness(), http.StatusOK
	if !ready.Ready {
		status = http.StatusServiceUnavailable
	}
	if !details {
		ready = ready.Brief()
	}
	writeJSON(w, status, ready)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have closed the connection
}

// serveHTTP serves until ctx ends, and then waits for requests in flight, up to httpStopWait.
func serveHTTP(hs *http.Server, conns *web.Conns, l net.Listener, config *tls.Config) func(context.Context) error {
	return func(ctx context.Context) error {
		failed := make(chan error, 1)
		go func() { failed <- conns.Serve(hs, l, config) }()
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
		}
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpStopWait)
		defer cancel()
		if err := hs.Shutdown(stop); err != nil {
			_ = hs.Close()
		}
		<-failed
		return nil
	}
}

// reachable is the URL of addr for clients on this machine.
func reachable(scheme string, credentials datadir.Credentials, addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return scheme + "://" + addr
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		// Also for [::], which a listener on 0.0.0.0 reports: it accepts IPv4, and the machine may have no IPv6.
		host = "127.0.0.1"
	}
	u := url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)}
	if credentials != (datadir.Credentials{}) {
		u.User = url.UserPassword(credentials.User, credentials.Password)
	}
	return u.String()
}
