package webhook

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth/authtest"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

var codeKey = [32]byte{7}

// ann is a person.
var ann = Author{Principal: access.Principal{ID: "01h8z3qk", Name: "ann", Role: access.Operator, Codes: true, Customers: true}, Via: "test"}

// rig is a log of one lane, whose events the test writes, and an endpoint over TLS on this machine.
type rig struct {
	server   *streamtest.Server
	js       jetstream.JetStream
	log      topology.Log
	store    *Store
	endpoint *httptest.Server
	n        uint64
	changed  testsignal.Signal[struct{}]

	mu   sync.Mutex
	got  []received
	next func(w http.ResponseWriter, r *http.Request) // nil = 200
}

type received struct {
	header http.Header
	body   string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{server: streamtest.Start(t, authtest.Servers(1))}
	r.changed.Watch()
	r.js = r.server.JetStream(t)
	var err error
	if r.log, err = topology.Ensure(within(t), r.js, topology.Spec{Lanes: 1, KeyFingerprint: "test"}); err != nil {
		t.Fatal(err)
	}
	r.store = r.open(r.js)
	r.endpoint = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.got = append(r.got, received{req.Header.Clone(), string(body)})
		next := r.next
		r.mu.Unlock()
		if next != nil {
			next(w, req)
		}
	}))
	r.endpoint.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	r.endpoint.StartTLS()
	t.Cleanup(r.endpoint.Close)
	return r
}

// open opens the registry over a connection.
func (r *rig) open(js jetstream.JetStream) *Store {
	return Open(js, NewKey(codeKey, r.log.UUID), registry.Options{Audit: audit.Open(r.js, nil)})
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (r *rig) roots() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(r.endpoint.Certificate())
	return roots
}

// answers sets what the endpoint does.
func (r *rig) answers(f func(w http.ResponseWriter, r *http.Request)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = f
}

func (r *rig) received() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

// event writes one message of event lines.
func (r *rig) event(t *testing.T, lines ...string) {
	t.Helper()
	r.n++
	now := time.Now()
	h := eventlog.Header{Owner: "test", Commands: [2]uint64{r.n, r.n}, CommandTime: now, LaneTime: now}
	data := []byte(strings.Join(lines, "\n") + "\n")
	header := eventlog.Events(nil, 0).In(r.log.WithKey(codeKey)).Sealer().Encode(h, r.n, data)
	if _, err := r.js.PublishMsg(within(t), &nats.Msg{Subject: topology.Evt(0), Header: header, Data: data}); err != nil {
		t.Fatal(err)
	}
}

func claimed(customer string) string {
	return `{"type":"coupon.claimed","campaign":"summer","at":"2027-01-15T08:00:00Z","id":"c-1","n":1,"code":"AAAABBBBCCCC","customer_id":"` + customer + `","attributes":{"channel":"app"}}`
}

const paused = `{"type":"campaign.paused","campaign":"summer","at":"2027-01-15T08:00:00Z","id":"c-2"}`

// create makes an endpoint for the rig's server.
func (r *rig) create(t *testing.T, s Config) (Endpoint, signature.Secret) {
	t.Helper()
	if s.URL == "" {
		s.URL = r.endpoint.URL
	}
	if s.Types == nil {
		s.Types = []string{"coupon.*"}
	}
	e, secret, err := r.store.Create(within(t), ann, s)
	streamtest.Must(t, err)
	return e, secret
}

// make makes a change.
func (r *rig) make(t *testing.T, c Change) Endpoint {
	t.Helper()
	e, err := r.store.Make(within(t), ann, c, 0)
	streamtest.Must(t, err)
	return e
}

// unavailable answers 503.
func unavailable(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusServiceUnavailable)
}

func (r *rig) runner(js jetstream.JetStream, change func(*Options)) *Runner {
	o := Options{
		JetStream: js, Log: r.log, CodeKey: codeKey, Server: "one", Logger: slog.New(slog.DiscardHandler), Roots: r.roots(),
		Guard: &Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}},
	}
	if change != nil {
		change(&o)
	}
	run := New(o)
	run.Changed = r.changed
	return run
}

// until waits for a fact that a runner of the rig shows, or what an endpoint or the store got before that.
func (r *rig) until(t *testing.T, what string, fact func() bool) {
	t.Helper()
	t.Logf("waiting until %s", what)
	if !fact() {
		r.changed.WaitFor(t, func(struct{}) bool { return fact() })
	}
}

// serve delivers to one endpoint until the returned function is called.
func (r *rig) serve(t *testing.T, run *Runner, e Endpoint) (stop func()) {
	t.Helper()
	return streamtest.Background(t, func(ctx context.Context) error {
		run.keep(ctx, e)
		return nil
	})
}
