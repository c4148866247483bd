package server

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strings"
	"syscall"
	"time"
)

const (
	// httpHeaderWait cuts off clients that open a connection and say nothing.
	httpHeaderWait = 5 * time.Second
	// httpStopWait is how long requests under way may take when the server stops.
	httpStopWait = 2 * time.Second
)

// listenHTTP takes the address early, so that a taken port is told before anything else was started.
func listenHTTP(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use, perhaps by another scrip; stop that one or choose another address with --http-listen: %w", addr, err)
	}
	if err != nil {
		return nil, fmt.Errorf("HTTP can not listen on %s; choose another address with --http-listen: %w", addr, err)
	}
	return l, nil
}

// handler is what is served: whether the process lives and is ready, to anybody; the rest to those with credentials.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"alive": true})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ready := s.health.ask()
		status := http.StatusOK
		if !ready.Ready {
			status = http.StatusServiceUnavailable
		}
		writeJSON(w, status, ready)
	})
	mux.Handle("GET /metrics", s.guarded(s.metrics.handler()))
	// Profiles, read with: go tool pprof http://127.0.0.1:8080/debug/pprof/profile
	mux.Handle("GET /debug/pprof/", s.guarded(http.HandlerFunc(pprof.Index)))
	mux.Handle("GET /debug/pprof/profile", s.guarded(http.HandlerFunc(pprof.Profile)))
	mux.Handle("GET /debug/pprof/trace", s.guarded(http.HandlerFunc(pprof.Trace)))
	return mux
}

// guarded asks for the credentials, where there are any.
func (s *server) guarded(next http.Handler) http.Handler {
	if s.opts.Credentials == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(user+":"+password), []byte(s.opts.Credentials)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="scrip"`)
			http.Error(w, "give the server's credentials", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

// serveHTTP serves until ctx ends.
func (s *server) serveHTTP(l net.Listener) func(context.Context) error {
	return func(ctx context.Context) error {
		hs := &http.Server{Handler: s.handler(), ReadHeaderTimeout: httpHeaderWait}
		failed := make(chan error, 1)
		go func() { failed <- hs.Serve(l) }()
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

// reachable is the URL by which a client on this machine reaches what listens on addr.
func reachable(scheme, credentials, addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return scheme + "://" + addr
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		// Also for [::], which is what listening on 0.0.0.0 reports: it takes IPv4, and the machine may have no IPv6.
		host = "127.0.0.1"
	}
	u := url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)}
	if user, password, ok := strings.Cut(credentials, ":"); ok {
		u.User = url.UserPassword(user, password)
	}
	return u.String()
}
