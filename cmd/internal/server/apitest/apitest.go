// Package apitest gives tests a server of scrip with all its parts, in this process, and a client of its HTTP API.
//
//	r := apitest.Serve(t)
//	r.Key(t, "support")
//	r.Ask(t, "support", "GET", "/v1/campaigns", nil).Want(t, 200)
//
// Every answer of /v1 is judged by the OpenAPI document that the server serves. It uses PostgreSQL as package projtest gives it:
// a test binary calls Main.
package apitest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// Patience is how long a test waits for something that should come at once, on machines under load.
const Patience = 2 * time.Minute

// Rig is a server with all roles, in this process.
type Rig struct {
	URL  string // without credentials
	NATS string // likewise
	User *url.Userinfo
	Shop *client.Client
	Keys map[string]string // secrets, by role; "support+codes" and others by their name
	IDs  map[string]string // ids of keys, by the same name
	// Postgres is the URL of the database that has the read tables.
	Postgres string

	// Stop stops the server; the end of the test does it too.
	Stop func() error
}

var names atomic.Int64

// Name returns a name that no other test has.
func Name(of string) string { return fmt.Sprintf("%s-%d", of, names.Add(1)) }

// shared is the server that tests of one binary have together.
var shared struct {
	once sync.Once
	home home
	rig  *Rig
}

// Shared returns a server that all tests of the binary use, which is started once. A test that counts what a whole log has, or
// changes its settings, starts its own by Serve.
func Shared(t testing.TB) *Rig {
	t.Helper()
	shared.once.Do(func() { shared.rig = serve(&shared.home, os.Stderr) })
	if shared.rig == nil {
		t.Fatal("the shared server did not start")
	}
	r := *shared.rig
	r.Keys, r.IDs = map[string]string{}, map[string]string{} // keys are a test's own, and so are their allowances
	return &r
}

// Main runs the tests, fails if all ran and an operation of the document had no successful answer, and stops the shared server
// and the shared PostgreSQL at their end. It returns the exit code for os.Exit.
func Main(m *testing.M) int { return projtest.Main(&running{m, true}) }

// Some is Main for a package whose tests need not succeed with all operations.
func Some(m *testing.M) int { return projtest.Main(&running{m, false}) }

type running struct {
	m   *testing.M
	all bool
}

func (r *running) Run() int {
	access.StrangerBurst = 1 << 30 // tests ask without a key as often as they like
	code := r.m.Run()
	if d := document.Document; r.all && d != nil && code == 0 && flag.Lookup("test.run").Value.String() == "" {
		if ids := d.Unanswered(); len(ids) > 0 {
			fmt.Fprintln(os.Stderr, "no test asks for:", ids)
			code = 1
		}
	}
	if shared.home.end() {
		code = max(code, 1)
	}
	return code
}

// home is what the shared server belongs to: a testing.TB that ends with the binary. A failure of its start ends the binary.
type home struct {
	testing.TB
	ends  []func()
	fails bool
}

func (h *home) Helper()          {}
func (h *home) Cleanup(f func()) { h.ends = append(h.ends, f) }
func (h *home) Fatal(all ...any) { panic(fmt.Sprint(all...)) }
func (h *home) Fatalf(format string, all ...any) {
	panic(fmt.Sprintf(format, all...))
}
func (h *home) Error(all ...any) { h.Errorf("%v", all) }
func (h *home) Errorf(format string, all ...any) {
	h.fails = true
	fmt.Fprintf(os.Stderr, "the shared server: "+format+"\n", all...)
}

func (h *home) TempDir() string {
	dir, err := os.MkdirTemp("", "apitest-")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (h *home) end() (failed bool) {
	for len(h.ends) > 0 {
		last := h.ends[len(h.ends)-1]
		h.ends = h.ends[:len(h.ends)-1]
		last()
	}
	return h.fails
}

// Serve starts a server for one test, which fails if NATS refuses something to the server's own user.
func Serve(t *testing.T, change ...func(*server.Options)) *Rig {
	t.Helper()
	return serve(t, t.Output(), change...)
}

func serve(t testing.TB, log io.Writer, change ...func(*server.Options)) *Rig {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	opts := server.Options{Data: data, NATSListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", Postgres: projtest.URL(t), Lanes: 2,
		Logger: slog.New(streamtest.Strict(t, slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))), Version: "v1.2.3"}
	for _, c := range change {
		c(&opts)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, opts) }()
	r := &Rig{Keys: map[string]string{}, IDs: map[string]string{}, Postgres: opts.Postgres}
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
		d, err := datadir.Find(opts.Data)
		if err != nil {
			return false
		}
		u, err := url.Parse(d.HTTPURL)
		if err != nil {
			t.Fatal(err)
		}
		r.User, u.User = u.User, nil
		r.URL = u.String()
		if u, err = url.Parse(d.NATSURL); err != nil {
			t.Fatal(err)
		}
		u.User = nil
		r.NATS = u.String()
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

// Key makes a key, once for each name, which is the role with what it may in addition: support+codes, +customers, or +clear for both.
func (r *Rig) Key(t testing.TB, named string) string {
	t.Helper()
	if k, ok := r.Keys[named]; ok {
		return k
	}
	role, rest, _ := strings.Cut(named, "+")
	body := map[string]any{"name": Name("test-" + role), "role": role}
	switch {
	case rest == "codes", rest == "customers":
		body[rest] = true
	case rest == "clear":
		body["codes"], body["customers"] = true, true
	case rest == "public":
		body["public"] = true
	case strings.HasPrefix(rest, "rate="):
		body["rate"] = json.Number(rest[len("rate="):])
	case rest != "":
		body["campaigns"] = strings.Split(rest, ",")
	}
	var made struct {
		ID     string
		Secret string
	}
	r.Ask(t, "", "POST", "/v1/keys", body).Want(t, 201).Into(t, &made)
	r.Keys[named], r.IDs[named] = made.Secret, made.ID
	// In force within a second.
	Until(t, "the key is in force", func() bool { return r.Ask(t, named, "GET", "/v1/settings", nil).Status != http.StatusUnauthorized })
	return made.Secret
}

var document struct {
	once sync.Once
	*Document
}

// Document is the document as the server serves it. It is the same for every log, so it is read once.
func (r *Rig) Document(t testing.TB) *Document {
	t.Helper()
	document.once.Do(func() {
		resp, err := http.Get(r.URL + "/v1/openapi.json")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if document.Document, err = ReadDocument(raw); err != nil {
			t.Fatal(err)
		}
	})
	return document.Document
}
