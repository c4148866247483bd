package webhook

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

// bad is a sender to a TLS server with a handler, and one event.
func bad(t *testing.T, handler http.HandlerFunc, change func(*Guard, *http.Transport)) (*sender, *httptest.Server) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	g := &Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	tr := transport(g, server.URL, roots, nil)
	if change != nil {
		change(g, tr)
	}
	s, err := Config{URL: server.URL + "/hook?token=to-ken", Types: []string{"coupon.*"}}.Validate()
	streamtest.Must(t, err)
	snd := newSender(Endpoint{ID: "x", Config: s}, []signature.Secret{signature.NewSecret()}, tr, streamtest.NewClock(), func(context.Context, Change) error { return nil })
	t.Cleanup(snd.client.CloseIdleConnections)
	return snd, server
}

var one = []push.Line{{Key: "k", Type: "coupon.claimed", Raw: []byte(claimed("ann"))}}

// What an endpoint may do, and what follows.
func TestBadEndpoints(t *testing.T) {
	status := func(code int, after string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.WriteHeader(code)
		}
	}
	for name, tc := range map[string]struct {
		handler       http.HandlerFunc
		change        func(*Guard, *http.Transport)
		want          string // part of the error, "" = delivered
		away, refused bool
		rest          time.Duration
	}{
		"200":              {handler: status(200, "")},
		"answers and ends": {handler: func(w http.ResponseWriter, _ *http.Request) { half(w) }},
		"429":              {handler: status(429, "120"), want: "429", away: true, rest: 2 * time.Minute},
		"503":              {handler: status(503, ""), want: "503", away: true},
		"410":              {handler: status(410, ""), want: "410 Gone", away: true, rest: 24 * time.Hour},
		"500":              {handler: status(500, ""), want: "500"},
		"404":              {handler: status(404, ""), want: "404"},
		"422":              {handler: status(422, ""), want: "422", refused: true},
		"207 of one":       {handler: status(207, "")},
		"bad certificate":  {handler: status(200, ""), change: func(_ *Guard, tr *http.Transport) { tr.TLSClientConfig.RootCAs = x509.NewCertPool() }, want: "certificate", away: true},
		"inside":           {handler: status(200, ""), change: func(g *Guard, _ *http.Transport) { g.Allow = nil }, want: "127.0.0.1 is inside", away: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := bad(t, tc.handler, tc.change)
			err := s.push(t.Context(), one)
			var away *push.Away
			var refused *push.Refused
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) ||
				errors.As(err, &away) != tc.away || errors.As(err, &refused) != tc.refused || tc.away && away.RetryAfter != tc.rest {
				t.Errorf("%#v", err)
			}
			if err != nil && strings.Contains(err.Error(), "to-ken") {
				t.Errorf("%q has the URL's query", err)
			}
		})
	}
}

// half answers 200 and closes before the end of the body.
func half(w http.ResponseWriter) {
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, "half")
	_ = http.NewResponseController(w).Flush() // the test shows whether it worked
	panic(http.ErrAbortHandler)
}

// A redirect is not followed, wherever it leads.
func TestRedirectInward(t *testing.T) {
	var reached atomic.Bool
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer inner.Close()
	for _, code := range []int{301, 302, 303, 307, 308} {
		s, _ := bad(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inner.URL, code) }, nil)
		if err := s.push(t.Context(), one); err == nil || !strings.Contains(err.Error(), fmt.Sprint(code)) {
			t.Errorf("%d: %v", code, err)
		}
	}
	if reached.Load() {
		t.Error("the redirect was followed")
	}
}

// An endpoint that hangs costs its own calls their time, and another endpoint is served at the same time.
func TestHangs(t *testing.T) {
	r := newRig(t)
	release := make(chan struct{})
	defer close(release)
	hanging, _ := r.create(t, Config{Concurrency: 1})
	r.answers(func(_ http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, "/well") {
			return
		}
		select {
		case <-release:
		case <-req.Context().Done():
		}
	})
	well, _ := r.create(t, Config{URL: r.endpoint.URL + "/well"})
	run := r.runner(r.js, func(o *Options) { o.timeout = 100 * time.Millisecond })
	r.serve(t, run, hanging)
	r.serve(t, run, well)
	for i := range 5 {
		r.event(t, claimed(fmt.Sprint(i)))
	}
	r.until(t, "the other is served, and the calls to this one fail", func() bool {
		st := run.Stats()
		return st[well.ID].Pushed == 5 && st[hanging.ID].FailedTries >= 2
	})
	if st := run.Stats()[hanging.ID]; st.Pushed != 0 || st.Dead != 0 {
		t.Errorf("%+v", st)
	}
}

// A name that resolves to an allowed address first and to this machine afterwards is refused at the second connection.
func TestRebinding(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skipf("this machine has no 127.0.0.2: %v", err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Listener = l
	server.Start()
	defer server.Close()
	var lookups atomic.Int32
	resolver := resolving(t, func() [4]byte {
		if lookups.Add(1) == 1 {
			return [4]byte{127, 0, 0, 2}
		}
		return [4]byte{127, 0, 0, 1}
	})
	tr := transport(&Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}}, "http://rebind.example", nil, resolver)
	tr.DisableKeepAlives = true
	_, port, _ := net.SplitHostPort(l.Addr().String())
	s := newSender(Endpoint{ID: "x", Config: Config{URL: "http://rebind.example:" + port, Batch: 1, Rate: 50, Concurrency: 1}}, nil, tr, streamtest.NewClock(), func(context.Context, Change) error { return nil })
	if err := s.push(t.Context(), one); err != nil {
		t.Fatalf("the first request: %v", err)
	}
	if err := s.push(t.Context(), one); err == nil || !strings.Contains(err.Error(), "127.0.0.1 is inside") {
		t.Errorf("the second request: %v", err)
	}
}

// resolving is a resolver whose DNS server answers each A question with what f returns, and others with nothing.
func resolving(t *testing.T, f func() [4]byte) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	streamtest.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			end := 12
			for buf[end] != 0 {
				end += int(buf[end]) + 1
			}
			question := buf[12 : end+5]
			answer := append([]byte{buf[0], buf[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
			if n > 0 && binary.BigEndian.Uint16(question[len(question)-4:]) == 1 {
				ip := f()
				answer[7] = 1
				answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, ip[0], ip[1], ip[2], ip[3])
			}
			_, _ = conn.WriteTo(answer, from)
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func TestGuard(t *testing.T) {
	mine := netip.MustParseAddr("8.8.4.4")
	g := &Guard{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("8.8.4.0/24")}, Own: func() []int { return []int{8080} }, local: func() []netip.Addr { return []netip.Addr{mine} }}
	for address, want := range map[string]bool{
		"8.8.8.8:443": true, "8.8.8.8:80": false, "8.8.8.8:22": false, "[2606:4700::1111]:443": true,
		"127.0.0.1:443": false, "127.9.9.9:443": false, "[::1]:443": false, "0.0.0.0:443": false, "0.1.2.3:443": false, "[::]:443": false,
		"10.0.0.1:443": false, "10.1.2.3:443": true, "10.1.2.3:8443": true, "172.16.0.1:443": false, "172.31.255.255:443": false, "172.32.0.1:443": true, "192.168.1.1:443": false,
		"169.254.169.254:443": false, "100.64.0.1:443": false, "100.127.255.255:443": false, "224.0.0.1:443": false, "255.255.255.255:443": false, "198.18.0.1:443": false,
		"[fd00::1]:443": false, "[fe80::1%eth0]:443": false, "[ff02::1]:443": false, "[::ffff:127.0.0.1]:443": false, "[::ffff:10.1.2.3]:443": true, "[::ffff:8.8.8.8]:443": true,
		"[64:ff9b::7f00:1]:443": false, "[64:ff9b:1::1]:443": false, "[2002:7f00:1::]:443": false, "[::127.0.0.1]:443": false, "[::ffff:0:127.0.0.1]:443": false, "[::ffff:0:8.8.8.8]:443": false, "[2001:db8::1]:443": false,
		"8.8.4.4:8080": false, "8.8.4.4:443": true, "8.8.4.5:8080": true, "nonsense": false,
	} {
		if err := g.Control(false)("tcp", address, nil); (err == nil) != want {
			t.Errorf("%s: %v, want allowed=%t", address, err, want)
		}
	}
	for address, want := range map[string]bool{"8.8.8.8:443": false, "8.8.8.8:80": false, "8.8.4.4:443": true, "10.1.2.3:8080": true} {
		if err := g.Control(true)("tcp", address, nil); (err == nil) != want {
			t.Errorf("http to %s: %v, want allowed=%t", address, err, want)
		}
	}
	for _, address := range []string{"8.8.8.8:80", "8.8.8.8:443"} {
		if err := (&Guard{HTTP: true}).Control(true)("tcp", address, nil); err != nil {
			t.Errorf("http to %s with HTTP: %v", address, err)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{URL: "https://shop.example/hooks", Types: []string{"coupon.*", "coupons.expired", "reminder.due", "campaign.created"}}
	if s, err := good.Validate(); err != nil || s.Batch != 1 || s.Rate != 50 || s.Concurrency != 4 || s.MaxAge != 168*hour {
		t.Errorf("%+v, %v", s, err)
	}
	for want, change := range map[string]func(*Config){
		"url must be an https":    func(s *Config) { s.URL = "ftp://x" },
		"neither user":            func(s *Config) { s.URL = "https://u:p@x/" },
		"url must be an":          func(s *Config) { s.URL = "https://x/" + strings.Repeat("a", 3000) },
		"give at least one":       func(s *Config) { s.Types = nil },
		"is none of":              func(s *Config) { s.Types = []string{"reminder.set"} },
		"is no name":              func(s *Config) { s.Campaigns = []string{"a b"} },
		"campaigns: 101":          func(s *Config) { s.Campaigns = make([]string, 101) },
		"batch is 501":            func(s *Config) { s.Batch = 501 },
		"rate is -1":              func(s *Config) { s.Rate = -1 },
		"concurrency is 65":       func(s *Config) { s.Concurrency = 65 },
		"schedule must be":        func(s *Config) { s.Schedule = []wire.Period{5 * second, second / 10} },
		"schedule has 21":         func(s *Config) { s.Schedule = make([]wire.Period, 21) },
		"max_age is 10000h; give": func(s *Config) { s.MaxAge = 10_000 * hour },
	} {
		s := good
		change(&s)
		if _, err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}

// A request is at most 256 KiB, and its ids do not depend on how often it is made.
func TestRequestsAreBounded(t *testing.T) {
	var batch []push.Line
	for i := range 500 {
		batch = append(batch, push.Line{Key: fmt.Sprint(i), Type: "coupon.claimed", Raw: []byte(claimed(strings.Repeat("x", 1000)))})
	}
	all, err := requests(batch, false, true)
	if err != nil || len(all) < 2 {
		t.Fatalf("%d requests, %v", len(all), err)
	}
	again, _ := requests(batch, false, true)
	lines := 0
	for i, r := range all {
		if len(r.body) > bodyMost || r.first != lines || again[i].id != r.id || string(again[i].body) != string(r.body) {
			t.Errorf("request %d: %d bytes, from %d", i, len(r.body), r.first)
		}
		lines += r.lines
	}
	if lines != 500 {
		t.Errorf("%d lines", lines)
	}
}

func TestSecretsAreSealed(t *testing.T) {
	k, s := NewKey(codeKey, "log"), signature.NewSecret()
	sealed := k.seal(s, "a")
	if got, err := k.open(sealed, "a"); err != nil || got.Text() != s.Text() {
		t.Errorf("%v", err)
	}
	for name, try := range map[string]func() (signature.Secret, error){
		"another endpoint": func() (signature.Secret, error) { return k.open(sealed, "b") },
		"another log":      func() (signature.Secret, error) { return NewKey(codeKey, "log2").open(sealed, "a") },
		"another key":      func() (signature.Secret, error) { return NewKey([32]byte{8}, "log").open(sealed, "a") },
		"cut":              func() (signature.Secret, error) { return k.open(sealed[:8], "a") },
	} {
		if _, err := try(); err == nil {
			t.Errorf("%s opens it", name)
		}
	}
}

func FuzzChange(f *testing.F) {
	f.Add([]byte(`{"webhook":"a","what":"create","config":{"url":"https://x","types":["coupon.*"]}}`))
	f.Add([]byte(`{"webhook":"a","what":"rotate","secret":"AAAA"}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		var c registry.Change[Change]
		if json.Unmarshal(value, &c.Record) != nil {
			return
		}
		s := newState()
		for n, what := range []string{c.Record.What, Update, Rotate, Replay, Retry} {
			c.N, c.Record.What = uint64(n+1), what
			_ = s.take(&c)
		}
		for _, e := range s.list() {
			if _, err := e.Validate(); err != nil {
				t.Errorf("an invalid endpoint is in force: %v", err)
			}
		}
	})
}
