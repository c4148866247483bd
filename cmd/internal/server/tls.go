package server

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/certs"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
)

// startTLS reads the certificate, if there is one, and follows its files.
func (s *server) startTLS() error {
	if s.opts.TLSCert == "" {
		return nil
	}
	pair, err := certs.Open(s.opts.TLSCert, s.opts.TLSKey, s.log)
	if err != nil {
		return err
	}
	s.certs = pair
	if err := s.metrics.registry.Register(pair); err != nil {
		return err
	}
	s.group.start("tls", pair.Run)
	s.health.add("tls", false, func() (bool, any) {
		ok, status := pair.Status(time.Now())
		return ok, status
	})
	return nil
}

// serverTLS is the configuration of listeners, nil without TLS.
func (s *server) serverTLS() *tls.Config {
	if s.certs == nil {
		return nil
	}
	return s.certs.Server()
}

// ownTLS is the configuration of this process's connections to the embedded NATS, nil without TLS.
func (s *server) ownTLS() *tls.Config {
	if s.certs == nil {
		return nil
	}
	return s.certs.Own()
}

// startOps serves metrics, profiles and the details of readiness on a listener of their own. On loopback they need no
// credentials: who enabled the listener decided that every user of the machine may read them. Elsewhere they do, also
// with --insecure: Options.Validate.
func (s *server) startOps() error {
	if s.opts.OpsListen == "" {
		return nil
	}
	l, err := listenHTTP(s.opts.OpsListen)
	if err != nil {
		return fmt.Errorf("--ops-listen: %w", err)
	}
	s.opsAddress = l.Addr().String()
	guard := func(h http.Handler) http.Handler { return h }
	if s.opts.Credentials != "" {
		guard = s.guarded
	}
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { s.writeReady(w, true) })))
	s.measure(mux, guard)
	hs := web.NewServer(s.byName(s.opts.OpsListen, mux))
	hs.Handler = web.HoldStrangers(s.strangers, s.known, hs.Handler)
	s.log.Info("serving metrics, profiles and details of readiness", "address", l.Addr().String())
	s.group.start("ops", serveHTTP(hs, web.NewConns(web.MaxOpsConns, web.MaxOpsConns, nil), l, s.serverTLS()))
	return nil
}
