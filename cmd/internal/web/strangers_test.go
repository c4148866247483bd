package web

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// knocked is a server for strangers: path /open needs no key, /later fails before the sender is known, and others need the key good.
func knocked() http.Handler {
	gate := &Gate{Keys: only{}}
	known := func(r *http.Request) bool {
		_, problem := gate.Identify(r)
		return problem == nil
	}
	return HoldStrangers(access.NewStrangers(nil), known, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/open":
			return
		case "/later":
			New(NotFound, "").Write(w)
		case "/login":
			http.Redirect(w, r, "/", http.StatusSeeOther)
		default:
			if _, problem := gate.Enter(w, r, ""); problem != nil {
				problem.Write(w)
				return
			}
			New(NotFound, "").Write(w)
		}
	}))
}

// only is a registry of the key good.
type only struct{ Keys }

func (only) Authenticate(key string) (access.Principal, error) {
	if key != "good" {
		return access.Principal{}, access.ErrUnknownKey
	}
	return access.Principal{ID: "k", Role: access.Producer}, nil
}

// TestStrangersAreHeld: what is refused before its sender is known, or is reset, counts for the address; beyond the rate it takes a
// second. Requests with a key, and what needs none, do not wait, also from that address.
func TestStrangersAreHeld(t *testing.T) {
	const here, elsewhere = "192.0.2.1:1", "192.0.2.2:1"
	reset, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx                context.Context
		path, header, from string
		held               bool
	}{
		"no key":          {t.Context(), "/v1", "", here, true},
		"a wrong key":     {t.Context(), "/v1", "Bearer bad", here, true},
		"no route":        {t.Context(), "/later", "", here, true},
		"no page":         {t.Context(), "/login", "", here, true},
		"a reset":         {reset, "/open", "", here, true},
		"other address":   {t.Context(), "/v1", "", elsewhere, false},
		"a key":           {t.Context(), "/v1", "Bearer good", here, false},
		"a key, no route": {t.Context(), "/later", "Bearer good", here, false},
		"a key, a reset":  {reset, "/v1", "Bearer good", here, false},
		"a probe":         {t.Context(), "/open", "", here, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := knocked()
				took := func(ctx context.Context, path, header, from string) time.Duration {
					r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
					if r.RemoteAddr = from; header != "" {
						r.Header.Set("Authorization", header)
					}
					start := time.Now()
					h.ServeHTTP(httptest.NewRecorder(), r)
					return time.Since(start)
				}
				for range 10 {
					if d := took(t.Context(), "/v1", "Bearer bad", here); d > 0 {
						t.Fatalf("one of ten attempts took %s", d)
					}
				}
				if d := took(c.ctx, c.path, c.header, c.from); (d == strangerWait) != c.held || !c.held && d > 0 {
					t.Errorf("it took %s", d)
				}
			})
		})
	}
}

// TestStrangersLoseHTTP2: an answer beyond the rate ends a connection of HTTP/2, on which any number of requests could be held. A
// client with a key keeps its connection.
func TestStrangersLoseHTTP2(t *testing.T) {
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(knocked())
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	for key, ended := range map[string]bool{"bad": true, "good": false} {
		opened.Store(0)
		transport := &http.Transport{TLSClientConfig: server.Client().Transport.(*http.Transport).TLSClientConfig.Clone(), ForceAttemptHTTP2: true}
		client := &http.Client{Transport: transport}
		for range 12 { // the eleventh is one too many
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1", nil)
			streamtest.Must(t, err)
			r.Header.Set("Authorization", "Bearer "+key)
			resp, err := client.Do(r)
			streamtest.Must(t, err)
			_ = resp.Body.Close()
			if resp.ProtoMajor != 2 {
				t.Fatalf("the request used %s", resp.Proto)
			}
		}
		transport.CloseIdleConnections()
		if got := opened.Load(); (got > 1) != ended {
			t.Errorf("with key %s 12 requests used %d connections", key, got)
		}
	}
}
