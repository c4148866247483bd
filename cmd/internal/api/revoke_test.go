package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// inForce is how long a change may take to have its effect at every server.
const inForce = time.Second

// TestRevokedWhileStreaming: three servers on a log with three replicas, each with streams of events for one key, as NDJSON and
// as server-sent events, while coupons are claimed. The key is revoked at one server: every server refuses it and ends its
// streams, and the streams of another key go on.
func TestRevokedWhileStreaming(t *testing.T) {
	cluster, db := streamtest.StartCluster(t), projtest.URL(t)
	var servers []*apitest.Rig
	for i := range 3 {
		servers = append(servers, apitest.Serve(t, func(o *server.Options) {
			o.NATS, o.NATSListen, o.Postgres, o.Replicas, o.CodeKey = cluster.URL(), "", db, 3, strings.Repeat("01", 32)
			if i > 0 {
				o.Roles = []server.Role{server.RoleAPI}
			}
		}))
	}
	first := servers[0]
	c := first.Campaign(t, map[string]any{"codes": 1_000_000})
	for _, name := range []string{"analyst", "analyst+clear"} {
		secret := first.Key(t, name)
		for _, r := range servers {
			r.Keys[name] = secret
			apitest.Until(t, "the key is in force", func() bool { return r.Ask(t, name, "GET", "/v1/settings", nil).Status == 403 })
		}
	}
	claiming, stop := context.WithCancel(t.Context())
	var claims sync.WaitGroup
	claims.Go(func() {
		for i := 0; claiming.Err() == nil; i++ {
			if _, err := first.Shop.Claim(claiming, c, fmt.Sprint("customer-", i)); err != nil && claiming.Err() == nil {
				t.Error(err)
				return
			}
			<-time.After(time.Millisecond) // a stream that never rests, on a machine that has other work
		}
	})
	defer claims.Wait()
	defer stop()
	type ended struct {
		what string
		last string
		at   time.Time
	}
	ends := make(chan ended, 6)
	var other []<-chan string
	for i, r := range servers {
		for how, header := range map[string]string{"NDJSON": "application/x-ndjson", "SSE": "text/event-stream"} {
			lines, _ := follow(t, r, "analyst", "after=now", "Accept", header)
			next(t, lines, "coupon.claimed")
			go func() {
				last := ""
				for line := range lines {
					if line != "" {
						last = line
					}
				}
				ends <- ended{fmt.Sprintf("%s of server %d", how, i), last, time.Now()}
			}()
		}
		lines, _ := follow(t, r, "analyst+clear", "after=now")
		other = append(other, lines)
	}

	first.Ask(t, "", "DELETE", "/v1/keys/"+first.IDs["analyst"], nil).Want(t, 200)
	answered := time.Now()
	for i, r := range servers {
		apitest.Until(t, "the key is refused", func() bool { return r.Ask(t, "analyst", "GET", "/v1/settings", nil).Status == http.StatusUnauthorized })
		if took := time.Since(answered); took > inForce {
			t.Errorf("server %d refuses the key %s after the revocation was answered, promised is %s", i, took, inForce)
		}
		r.Ask(t, "analyst", "GET", "/v1/events", nil).Problem(t, 401, "unauthorized", "")
	}
	limit := time.After(apitest.Patience)
	for range 6 {
		select {
		case e := <-ends:
			if took := e.at.Sub(answered); took > inForce {
				t.Errorf("%s ended %s after the revocation was answered, promised is %s", e.what, took, inForce)
			}
			if !strings.Contains(e.last, `"type":"end"`) || !strings.Contains(e.last, web.ErrRevoked.Error()) {
				t.Errorf("%s ended with %s", e.what, e.last)
			}
		case <-limit:
			t.Fatal("a stream of the revoked key is still open")
		}
	}
	first.Claim(t, c, "the-last")
	for _, lines := range other {
		next(t, lines, `"customer_id":"the-last"`)
	}
}

// keys is a registry in which a key is revoked after a number of checks.
type keys struct{ checks int }

func (k *keys) Authenticate(string) (access.Principal, error) {
	if k.checks--; k.checks < 0 {
		return access.Principal{}, access.ErrRevoked
	}
	return access.Principal{ID: "01h8z3qk", Name: "ann", Role: access.Operator, Codes: true}, nil
}

func (k *keys) Principal(string) (access.Principal, error) { return k.Authenticate("") }

func (*keys) AllowsOrigin(string) bool { return false }

// TestRevokedBetweenCheckAndStream: what outlives its check is checked again once a revocation would end it, so none goes on
// that was revoked in between.
func TestRevokedBetweenCheckAndStream(t *testing.T) {
	for _, c := range []struct{ method, path, mediaType string }{
		{"GET", "/v1/events?follow=1", ""},
		{"GET", "/v1/campaigns/summer/codes", ""},
		{"POST", "/v1/campaigns/summer/codes", "text/csv"},
	} {
		mux := http.NewServeMux()
		api.New(mux, api.Options{Gate: &web.Gate{Keys: &keys{checks: 1}}, Sessions: &web.Sessions{}})
		req := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader("code\n"))
		req.Header.Set("Authorization", "Bearer key")
		if c.mediaType != "" {
			req.Header.Set("Content-Type", c.mediaType)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, req)
		if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "revoked") {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
}
