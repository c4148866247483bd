package certs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/streams/testsignal"
)

// lookEvery is how often the files are looked at. Tests use a shorter time.
const lookEvery = time.Second

// Pair is a certificate and its key, as their files hold them now. It is a collector of metrics to register.
type Pair struct {
	certFile, keyFile string
	log               *slog.Logger
	every             time.Duration

	now    atomic.Pointer[loaded]
	failed atomic.Pointer[string] // why the files of now are not in use; nil = they are

	expiry, bad prometheus.Gauge

	looked testsignal.Signal[string] // after each look: why the files cannot be used, "" = they are in use
}

type loaded struct {
	pair      tls.Certificate
	cert, key []byte // the files
	before    []byte // the certificate before it, in DER: a connection may have begun with that
}

// Open reads the files. A certificate that has expired is accepted, with a warning: its clients report it.
func Open(certFile, keyFile string, log *slog.Logger) (*Pair, error) {
	if path, err := filepath.Abs(certFile); err == nil {
		certFile = path
	}
	p := Metrics()
	p.certFile, p.keyFile, p.log, p.every = certFile, keyFile, cmp.Or(log, slog.Default()), lookEvery
	if _, err := p.load(); err != nil {
		return nil, err
	}
	return p, nil
}

// Metrics returns a Pair without files, which describes the metrics of one.
func Metrics() *Pair {
	return &Pair{
		expiry: prometheus.NewGauge(prometheus.GaugeOpts{Name: "scrip_tls_expires_timestamp_seconds", Help: "When the certificate in use expires, in seconds since 1970."}),
		bad:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "scrip_tls_reload_failed", Help: "1 while the certificate's files have changed and cannot be used; the certificate before them stays in use."}),
	}
}

// load reads the files and puts them in use. changed is false if they are those in use.
func (p *Pair) load() (changed bool, err error) {
	cert, err := os.ReadFile(p.certFile)
	if err != nil {
		return false, fmt.Errorf("--tls-cert: %w", err)
	}
	key, err := os.ReadFile(p.keyFile)
	if err != nil {
		return false, fmt.Errorf("--tls-key: %w", err)
	}
	have := p.now.Load()
	if have != nil && bytes.Equal(cert, have.cert) && bytes.Equal(key, have.key) {
		return false, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("--tls-cert %s and --tls-key %s are no certificate and key in PEM that belong together: %w", p.certFile, p.keyFile, err)
	}
	next := &loaded{pair: pair, cert: cert, key: key}
	if have != nil {
		next.before = have.pair.Leaf.Raw
	}
	p.now.Store(next)
	p.expiry.Set(float64(pair.Leaf.NotAfter.Unix()))
	if time.Now().After(pair.Leaf.NotAfter) {
		p.log.Warn("the TLS certificate has expired; clients refuse it", "file", p.certFile, "expired", pair.Leaf.NotAfter.UTC())
	}
	return true, nil
}

// Run follows the files until ctx ends.
func (p *Pair) Run(ctx context.Context) error {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		changed, err := p.load()
		switch before := p.failed.Load(); {
		case err != nil:
			if text := err.Error(); before == nil || *before != text {
				p.failed.Store(&text)
				p.bad.Set(1)
				p.log.Error("the TLS certificate's files cannot be used; the certificate before them stays in use", "err", err)
			}
		case changed || before != nil:
			p.failed.Store(nil)
			p.bad.Set(0)
			p.log.Info("TLS certificate in use", "file", p.certFile, "expires", p.now.Load().pair.Leaf.NotAfter.UTC())
		}
		why := ""
		if err != nil {
			why = err.Error()
		}
		p.looked.Send(why)
	}
}

// File is the absolute path of the certificate.
func (p *Pair) File() string { return p.certFile }

// Files are the certificate and the key in use, in PEM.
func (p *Pair) Files() (cert, key []byte) { return p.now.Load().cert, p.now.Load().key }

// Server is the configuration of a listener: each connection gets the certificate that is in use when it begins.
func (p *Pair) Server() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &p.now.Load().pair, nil },
	}
}

// Own is the configuration of this process's own connections to its listeners. The address of such a connection need not be a
// name of the certificate, so instead of the name the certificate itself is compared: it must be the one in use, or the one
// before it.
func (p *Pair) Own() *tls.Config {
	return pinned(func(raw []byte) error {
		if now := p.now.Load(); !bytes.Equal(raw, now.pair.Leaf.Raw) && !bytes.Equal(raw, now.before) {
			return errOther
		}
		return nil
	})
}

// OfFile is the configuration of connections from this machine to a server whose certificate is in a file, as Own has it. The
// file is read with each connection.
func OfFile(certFile string) *tls.Config {
	return pinned(func(raw []byte) error {
		text, err := os.ReadFile(certFile)
		if err != nil {
			return fmt.Errorf("reading the server's certificate: %w", err)
		}
		block, _ := pem.Decode(text)
		if block == nil || !bytes.Equal(block.Bytes, raw) {
			return fmt.Errorf("%w, which is in %s", errOther, certFile)
		}
		return nil
	})
}

// SignedBy is the configuration of connections to servers whose certificates are signed by one of a file, in PEM.
func SignedBy(file string) (*tls.Config, error) {
	pool := x509.NewCertPool()
	text, err := os.ReadFile(file)
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = fmt.Errorf("%s has no certificate in PEM", file)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, err
}

var errOther = errors.New("the certificate is not that of this machine's server")

func pinned(check func(raw []byte) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// The name is not checked. VerifyConnection accepts one certificate only, and TLS proves that the peer has its key.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errOther
			}
			return check(state.PeerCertificates[0].Raw)
		},
	}
}

// Status is the detail of /readyz about the certificate.
type Status struct {
	File    string    `json:"file"`
	Expires time.Time `json:"expires"`
	Names   []string  `json:"names,omitempty"`
	// Error is why the files are not in use; "" = they are.
	Error string `json:"error,omitempty"`
}

// Status may be called from any goroutine. ok is false if the certificate has expired, or if its files cannot be used.
func (p *Pair) Status(now time.Time) (ok bool, s Status) {
	leaf := p.now.Load().pair.Leaf
	s = Status{File: p.certFile, Expires: leaf.NotAfter.UTC(), Names: names(leaf)}
	if failed := p.failed.Load(); failed != nil {
		s.Error = *failed
	} else if now.After(leaf.NotAfter) {
		s.Error = "the certificate has expired; put a new one into the file"
	}
	return s.Error == "", s
}

func names(leaf *x509.Certificate) []string {
	all := append([]string(nil), leaf.DNSNames...)
	for _, ip := range leaf.IPAddresses {
		all = append(all, ip.String())
	}
	return all
}

// Describe and Collect make it a [prometheus.Collector].
func (p *Pair) Describe(to chan<- *prometheus.Desc) {
	p.expiry.Describe(to)
	p.bad.Describe(to)
}

// Collect is described at Describe.
func (p *Pair) Collect(to chan<- prometheus.Metric) {
	p.expiry.Collect(to)
	p.bad.Collect(to)
}
