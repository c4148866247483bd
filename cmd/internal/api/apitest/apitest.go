// Package apitest gives tests a server of scrip with all its parts, in this process, and a client of its HTTP API.
//
//	r := apitest.Serve(t)
//	r.Key(t, "support")
//	r.Ask(t, "support", "GET", "/v1/campaigns", nil).Want(t, 200)
//
// It uses PostgreSQL as package projtest gives it: a test binary calls projtest.Main.
package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

// Patience is how long a test waits for something that should come at once, on machines under load.
const Patience = 2 * time.Minute

// Rig is a server with all roles, in this process.
type Rig struct {
	URL  string // without credentials
	User *url.Userinfo
	Shop *client.Client
	Keys map[string]string // by role; "support+codes" and others by their name

	// Stop stops the server; the end of the test does it too.
	Stop func() error
}

var names atomic.Int64

// Name returns a name that no other test has.
func Name(of string) string { return fmt.Sprintf("%s-%d", of, names.Add(1)) }

// Serve starts a server for one test.
func Serve(t *testing.T, change ...func(*server.Options)) *Rig {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	opts := server.Options{Data: data, NATSListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", Postgres: projtest.URL(t), Lanes: 2,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})), Version: "v1.2.3"}
	for _, c := range change {
		c(&opts)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, opts) }()
	r := &Rig{Keys: map[string]string{}}
	r.Stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	Until(t, "the server is ready", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatal(err)
		default:
		}
		d, err := datadir.Find(data)
		if err != nil {
			return false
		}
		u, err := url.Parse(d.HTTPURL)
		if err != nil {
			t.Fatal(err)
		}
		r.User, u.User = u.User, nil
		r.URL = u.String()
		if r.Shop, err = client.Connect(d.NATSURL); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Shop.Close)
		return true
	})
	return r
}

// Until waits for a fact.
func Until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !f(); {
		if time.Now().After(end) {
			t.Fatalf("after %s: not yet: %s", Patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Key makes a key, once for each name, which is the role with what it may in addition: support+codes.
func (r *Rig) Key(t testing.TB, named string) string {
	t.Helper()
	if k, ok := r.Keys[named]; ok {
		return k
	}
	role, rest, _ := strings.Cut(named, "+")
	body := map[string]any{"name": Name("test-" + role), "role": role}
	switch {
	case rest == "codes":
		body["codes"] = true
	case rest == "public":
		body["public"] = true
	case rest != "":
		body["campaigns"] = strings.Split(rest, ",")
	}
	var made struct{ Secret string }
	r.Ask(t, "", "POST", "/v1/keys", body).Want(t, 201).Into(t, &made)
	r.Keys[named] = made.Secret
	// In force within a second.
	Until(t, "the key is in force", func() bool { return r.Ask(t, named, "GET", "/v1/settings", nil).Status != http.StatusUnauthorized })
	return made.Secret
}

// Response is an answer, read to its end.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
	What   string
}

// Want fails unless the answer has one of the statuses.
func (r *Response) Want(t testing.TB, statuses ...int) *Response {
	t.Helper()
	for _, s := range statuses {
		if r.Status == s {
			return r
		}
	}
	t.Fatalf("%s: %d, want %v: %s", r.What, r.Status, statuses, r.Body)
	return nil
}

func (r *Response) Into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(r.Body, v); err != nil {
		t.Fatalf("%s: %v: %s", r.What, err, r.Body)
	}
}

// Object is the body as an object.
func (r *Response) Object(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	r.Into(t, &v)
	return v
}

// Problem fails unless the answer is that problem.
func (r *Response) Problem(t testing.TB, status int, code, location string) {
	t.Helper()
	r.Want(t, status)
	var p struct {
		Status int
		Code   string
		Errors []struct{ Location, Message string }
	}
	r.Into(t, &p)
	if p.Status != status || p.Code != code || r.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s: %s, want %d %s", r.What, r.Body, status, code)
	}
	if location != "" && (len(p.Errors) == 0 || p.Errors[0].Location != location || p.Errors[0].Message == "") {
		t.Errorf("%s: %s, want an error at %s", r.What, r.Body, location)
	}
}

// Request makes a request. as is a name of key; "" = the credentials of the data directory, "-" = nothing. body is JSON, or a
// string as it is.
func (r *Rig) Request(t testing.TB, as, method, path string, body any, header ...string) *http.Request {
	t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	case io.Reader:
		reader = b
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		reader = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, r.URL+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	if reader != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	switch as {
	case "":
		password, _ := r.User.Password()
		req.SetBasicAuth(r.User.Username(), password)
	case "-":
	default:
		req.Header.Set("Authorization", "Bearer "+r.Keys[as])
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

// Ask sends a request and reads the answer.
func (r *Rig) Ask(t testing.TB, as, method, path string, body any, header ...string) *Response {
	t.Helper()
	resp, err := http.DefaultClient.Do(r.Request(t, as, method, path, body, header...))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &Response{resp.StatusCode, resp.Header, raw, method + " " + path}
}

// Campaign creates one.
func (r *Rig) Campaign(t testing.TB, settings map[string]any) string {
	t.Helper()
	c := Name("c")
	settings["campaign"] = c
	r.Ask(t, "", "POST", "/v1/campaigns", settings).Want(t, 201)
	return c
}

// Claim claims a coupon and returns its code.
func (r *Rig) Claim(t testing.TB, campaign, customer string) string {
	t.Helper()
	out, err := r.Shop.Claim(t.Context(), campaign, customer)
	if err != nil || out.Refused() {
		t.Fatal(out, err)
	}
	return out.Code
}

// Redeem redeems a code.
func (r *Rig) Redeem(t testing.TB, code, order string, opts ...client.Option) {
	t.Helper()
	out, err := r.Shop.Redeem(t.Context(), code, order, opts...)
	if err != nil || out.Refused() {
		t.Fatal(out, err)
	}
}
