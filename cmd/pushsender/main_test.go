package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }

// output is what programs write, for whom a test waits.
type output struct {
	streamtest.Buffer
	written testsignal.Signal[struct{}]
}

func newOutput() *output {
	o := &output{}
	o.written.Watch()
	return o
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Buffer.Write(p)
	o.written.Send(struct{}{})
	return n, err
}

// await waits until what was written is enough.
func (o *output) await(t *testing.T, enough func(text string) bool) {
	t.Helper()
	for !enough(o.String()) {
		o.written.Wait(t)
	}
}

func lines(n int) func(string) bool {
	return func(text string) bool { return strings.Count(text, "\n") >= n }
}

// program is a pushsender that was started.
type program struct {
	out, err *output
	code     int
	ended    chan struct{}
	stop     func() // as Ctrl-C does, and waits
}

func start(t *testing.T, env map[string]string, args ...string) *program {
	t.Helper()
	return startTo(t, newOutput(), env, args...)
}

// startTo starts one that writes to an output of several.
func startTo(t *testing.T, out *output, env map[string]string, args ...string) *program {
	t.Helper()
	p := &program{out: out, err: newOutput(), ended: make(chan struct{})}
	m := &Main{Out: p.out, Err: p.err, Clock: wall.Machine, Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		p.code = m.Run(ctx, args)
		close(p.ended)
	}()
	p.stop = func() { cancel(); <-p.ended }
	t.Cleanup(p.stop)
	return p
}

// run waits for its end.
func run(t *testing.T, env map[string]string, args ...string) *program {
	t.Helper()
	p := start(t, env, args...)
	<-p.ended
	return p
}

// log is a server with a log of one lane, on which the test fires reminders.
type log struct {
	url string
	js  jetstream.JetStream
	n   uint64
}

func newLog(t *testing.T) *log {
	t.Helper()
	server := streamtest.Start(t)
	l := &log{url: server.ClientURL(), js: server.JetStream(t)}
	if _, err := topology.Ensure(t.Context(), l.js, topology.Spec{Lanes: 1, KeyFingerprint: "test"}); err != nil {
		t.Fatal(err)
	}
	return l
}

// fire fires a reminder for each customer, in one message whose seal is not checked.
func (l *log) fire(t *testing.T, customers ...string) {
	t.Helper()
	l.publish(t, func(h eventlog.Header, _ []byte) nats.Header { return streamtest.Sealed(h.Encode()) }, customers...)
}

func (l *log) publish(t *testing.T, encode func(h eventlog.Header, lines []byte) nats.Header, customers ...string) {
	t.Helper()
	l.n++
	lines := append(streamtest.Due("summer", 1_000*l.n, customers...), '\n')
	h := eventlog.Header{Owner: "test", Source: eventlog.Source{Sequence: l.n, Line: 1, LastR: 1}, SourceDigest: strings.Repeat("0", 32)}
	if _, err := l.js.PublishMsg(t.Context(), &nats.Msg{Subject: topology.Rmd(0), Header: encode(h, lines), Data: lines}); err != nil {
		t.Fatal(err)
	}
}

// settled fails unless senders of a name, which have ended, left nothing.
func settled(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	at, err := push.Positions(t.Context(), js, name)
	if err != nil || len(at) == 0 || slices.ContainsFunc(at, func(p push.Position) bool { return p.Waiting > 0 }) {
		t.Errorf("%s left %+v, %v", name, at, err)
	}
}

// Without a reader of its log a sender delivers and ends as ever. Without one of its standard output it ends, and what it could not
// print is delivered to the next.
func TestStandardStreamsWithoutReaders(t *testing.T) {
	l := newLog(t)
	r, broken, err := os.Pipe()
	streamtest.Must(t, err)
	defer broken.Close()
	streamtest.Must(t, r.Close())
	l.fire(t, "ann", "bob")
	args := []string{"--nats", l.url, "--since", "start", "--tries", "1"}
	env := func(string) (string, bool) { return "", false }
	failed := newOutput()
	m := &Main{Out: broken, Err: failed, Clock: wall.Machine, Env: env}
	if code := m.Run(t.Context(), args); code != cli.ExitFailed || !strings.Contains(failed.String(), "reader of standard output is gone") {
		t.Errorf("exit code %d: %s", code, failed.String())
	}
	ctx, stop := context.WithCancel(t.Context())
	printed, code := newOutput(), make(chan int)
	m = &Main{Out: printed, Err: broken, Clock: wall.Machine, Env: env}
	go func() { code <- m.Run(ctx, append(args, "--verbose")) }()
	printed.await(t, lines(2))
	stop()
	if got := <-code; got != cli.ExitDone {
		t.Errorf("exit code %d", got)
	}
	settled(t, l.js, "pushsender")
}

// A webhook fails, then accepts some reminders, then the rest; a reminder that it never accepts is listed and retried.
func TestWebhook(t *testing.T) {
	l := newLog(t)
	var mu sync.Mutex
	var keys []string
	var bodies [][]push.Reminder
	mended := false
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var batch []push.Reminder
		if err := json.NewDecoder(r.Body).Decode(&batch); err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %v: %v", r.Method, r.Header, err)
		}
		keys, bodies = append(keys, r.Header.Get(idempotencyHeader)), append(bodies, batch)
		switch {
		case len(bodies) == 1:
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		case len(batch) == 3:
			w.WriteHeader(http.StatusMultiStatus)
			_, _ = io.WriteString(w, `{"failed":[1],"error":"no device"}`)
		case !mended && batch[0].CustomerID == "bob":
			http.Error(w, "no no \x1b[2J"+strings.Repeat("no ", 1000), http.StatusUnprocessableEntity)
		}
	}))
	defer hook.Close()
	l.fire(t, "ann", "bob", "cid")
	p := start(t, nil, "--nats", l.url, "--webhook", hook.URL, "--since", "start", "--tries", "3", "--pause", "10ms", "--name", "hooked")
	p.err.await(t, func(text string) bool { return strings.Contains(text, "dead letter") })
	p.stop()
	settled(t, l.js, "hooked")
	if p.code != cli.ExitDone || !strings.Contains(p.err.String(), "pushed 2; opted out 0; failed tries 4; in dead letters 1") {
		t.Errorf("exit code %d: %s", p.code, p.err.String())
	}
	if len(keys) != 4 || keys[0] != keys[1] || keys[0] == keys[2] || keys[2] != keys[3] || len(keys[0]) != 32 || len(bodies[2]) != 1 || bodies[2][0].Key != bodies[0][1].Key {
		t.Errorf("keys %v, bodies %v", keys, bodies)
	}

	// The list, as text and as JSON; another name has none.
	got := run(t, nil, "dead", "--nats", l.url)
	if got.code != cli.ExitDone || !strings.Contains(got.out.String(), "SCRIP_RMD_0/1") || !strings.Contains(got.out.String(), "422 Unprocessable Entity") || strings.Contains(got.out.String(), "no no") ||
		!strings.Contains(got.out.String(), "1 customers in 1 dead letters") {
		t.Errorf("dead: exit code %d: %s%s", got.code, got.out.String(), got.err.String())
	}
	var letter push.DeadLetter
	if got = run(t, nil, "dead", "--json", "--nats", l.url, "--name", "hooked"); json.Unmarshal([]byte(got.out.String()), &letter) != nil ||
		letter.Name != "hooked" || len(letter.Reminders) != 1 || letter.Reminders[0].CustomerID != "bob" {
		t.Errorf("dead --json: %s", got.out.String())
	}
	if got = run(t, nil, "dead", "--nats", l.url, "--name", "other"); !strings.Contains(got.out.String(), "0 customers in 0 dead letters") {
		t.Errorf("dead of another: %s", got.out.String())
	}

	// Tried again: still no, then yes.
	again := []string{"retry", "--nats", l.url, "--webhook", hook.URL, "--name", "hooked"}
	if got = run(t, nil, again...); got.code != cli.ExitFailed || !strings.Contains(got.err.String(), "pushed 0; still dead 1") {
		t.Errorf("retry: exit code %d: %s", got.code, got.err.String())
	}
	mu.Lock()
	mended = true
	mu.Unlock()
	if got = run(t, nil, again...); got.code != cli.ExitDone || !strings.Contains(got.err.String(), "pushed 1; still dead 0") {
		t.Errorf("retry: exit code %d: %s", got.code, got.err.String())
	}
	if got = run(t, nil, "dead", "--nats", l.url); !strings.Contains(got.out.String(), "0 customers") {
		t.Errorf("dead: %s", got.out.String())
	}
}

// What a response means for a delivery, and what it tells of the webhook: whether it is away, and for how long, or refuses these
// reminders.
func TestWebhookAnswers(t *testing.T) {
	for _, c := range []struct {
		status        int
		body          string
		want          string // "" = delivered
		after         string
		away, refused bool
		rest          time.Duration
	}{
		{status: 204},
		{status: 207, body: `{"failed":[]}`},
		{status: 207, body: `{"failed":[0]}`, want: "the webhook reported a failure"},
		{status: 207, body: `{}`, want: `not {"failed":[…]}`},
		{status: 207, body: `ok`, want: `not {"failed":[…]}`},
		{status: 301, want: "301 Moved Permanently", refused: true}, // the target responds 200 to anything
		{status: 307, want: "307 Temporary Redirect", refused: true},
		{status: 400, want: "400 Bad Request", after: "120", refused: true},
		{status: 404, want: "404 Not Found", refused: true},
		{status: 408, want: "408", away: true},
		{status: 429, want: "429", after: "120", away: true, rest: 2 * time.Minute},
		{status: 500, want: "500"},
		{status: 502, want: "502", away: true},
		{status: 503, want: "503", away: true},
		{status: 503, want: "503", after: "7200", away: true, rest: 2 * time.Hour},
		{status: 504, want: "504", away: true},
	} {
		hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				return
			}
			w.Header().Set("Location", "/elsewhere")
			if c.after != "" {
				w.Header().Set("Retry-After", c.after)
			}
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		err := newWebhook(hook.URL, hook.Client().Transport, slog.New(slog.DiscardHandler)).push(t.Context(), []push.Reminder{{Key: "k"}})
		hook.Close()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
		var away *push.Away
		var refused *push.Refused
		if errors.As(err, &away) != c.away || errors.As(err, &refused) != c.refused || c.away && away.RetryAfter != c.rest {
			t.Errorf("%+v: %#v", c, err)
		}
	}
	var away *push.Away
	if err := newWebhook("http://127.0.0.1:1/", http.DefaultTransport, slog.New(slog.DiscardHandler)).push(t.Context(), []push.Reminder{{Key: "k"}}); !errors.As(err, &away) {
		t.Errorf("nothing listens: %#v", err)
	}
}

// With --secret a request has a signature by each secret, over the same id as Idempotency-Key.
func TestSigned(t *testing.T) {
	l := newLog(t)
	old, now := signature.NewSecret(), signature.NewSecret()
	type request struct {
		header http.Header
		body   []byte
	}
	got := make(chan request, 1)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Header.Clone(), body}
	}))
	defer hook.Close()
	l.fire(t, "ann")
	start(t, map[string]string{"SCRIP_NATS": l.url, "SCRIP_SECRET": old.Text() + " " + now.Text()}, "--webhook", hook.URL, "--since", "start", "--name", "signed")
	r := <-got
	for _, s := range []signature.Secret{old, now} {
		if id, err := signature.Verify(r.header, r.body, time.Now(), 5*time.Minute, s); err != nil || id != r.header.Get(idempotencyHeader) {
			t.Errorf("%q, %v: %v", id, err, r.header)
		}
	}
}

// Logs and dead letters have no secret of the URL and no text of the webhook's response; the debug log has the response.
func TestErrorsOfTheWebhookHoldNoSecrets(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no device of ann@example.com", http.StatusBadRequest)
	}))
	secret := func(base string) string {
		return strings.Replace(base, "://", "://shop:pass-word@", 1) + "/send?token=to-ken"
	}
	refused := newWebhook(secret(hook.URL), hook.Client().Transport, logger).push(t.Context(), []push.Reminder{{Key: "k"}})
	hook.Close()
	away := newWebhook(secret(hook.URL), http.DefaultTransport, logger).push(t.Context(), []push.Reminder{{Key: "k"}})
	for _, err := range []error{refused, away} {
		if err == nil {
			t.Fatal("no error")
		}
		for _, leak := range []string{"pass-word", "to-ken", "shop", "ann@"} {
			if strings.Contains(err.Error(), leak) {
				t.Errorf("%q holds %q", err, leak)
			}
		}
	}
	if !strings.Contains(log.String(), "no device of ann@example.com") {
		t.Errorf("the debug log has no body: %s", log.String())
	}
}

// A proxy is used only if it is given.
func TestProxy(t *testing.T) {
	var proxied atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { proxied.Add(1) }))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	m := &Main{webhook: "http://push.invalid/send"}
	m.opts.Logger = slog.New(slog.DiscardHandler)
	if err := m.sender()(t.Context(), []push.Reminder{{Key: "k"}}); err == nil || proxied.Load() != 0 {
		t.Errorf("without --proxy: %v, %d requests reached the proxy", err, proxied.Load())
	}
	m.proxy = proxy.URL
	if err := m.sender()(t.Context(), []push.Reminder{{Key: "k"}}); err != nil || proxied.Load() != 1 {
		t.Errorf("with --proxy: %v, %d requests reached the proxy", err, proxied.Load())
	}
}

func TestUsage(t *testing.T) {
	nowhere := t.TempDir()
	for args, want := range map[string]string{
		"--workers 0":               "--workers must be greater than 0",
		"--workers 99999":           "Workers is 99999",
		"--batch 501":               "Batch is 501",
		"--name a.b":                "Name is",
		"--since yesterday":         "now, start, or an RFC 3339",
		"--webhook push.example":    "must be an http or https URL such as",
		"--timeout -1s":             "--timeout must be greater than 0",
		"--unknown":                 "unknown flag",
		"resend":                    `no command "resend"`,
		"dead 7":                    `takes no "7"`,
		"retry --webhook ftp://x/y": "must be an http or https URL such as",
		"--proxy proxy:3128":        "must be an http or https URL such as",
		"--secret whsec_c2hvcnQ=":   "base64 of 24 to 64 bytes",
		"--max-age 1ms":             "MaxAge is 1ms",
	} {
		if p := run(t, nil, strings.Fields(args)...); p.code != cli.ExitUsage || !strings.Contains(p.err.String(), want) {
			t.Errorf("%s: exit code %d, %s, want %q", args, p.code, p.err.String(), want)
		}
	}
	for args, want := range map[string]string{
		"--data " + nowhere:                 "start one with `scrip serve`",
		"dead --nats nats://127.0.0.1:1":    "is `scrip serve` running there?",
		"retry --data " + nowhere + "/a/b/": "no server runs on",
	} {
		if p := run(t, nil, strings.Fields(args)...); p.code != cli.ExitFailed || !strings.Contains(p.err.String(), want) {
			t.Errorf("%s: exit code %d, %s, want %q", args, p.code, p.err.String(), want)
		}
	}
	empty := streamtest.Start(t)
	if p := run(t, map[string]string{"SCRIP_NATS": empty.ClientURL()}); p.code != cli.ExitFailed || !strings.Contains(p.err.String(), "there is no log on this NATS server") {
		t.Errorf("no log: exit code %d, %s", p.code, p.err.String())
	}
	if p := run(t, map[string]string{"SCRIP_NATS": empty.ClientURL()}, "dead"); p.code != cli.ExitDone {
		t.Errorf("no dead letters: exit code %d, %s", p.code, p.err.String())
	}
	if p := run(t, nil, "--help"); p.code != cli.ExitDone || !strings.Contains(p.out.String(), "pushsender retry") {
		t.Errorf("help: exit code %d, %s", p.code, p.out.String())
	}
}

// TestForgedReminders: with the seal key alone a sender ignores forged messages; without it, it cannot detect them.
func TestForgedReminders(t *testing.T) {
	l := newLog(t)
	of, _, err := topology.Inspect(t.Context(), l.js)
	streamtest.Must(t, err)
	code := [32]byte{1}
	for _, by := range []struct {
		key      [32]byte
		customer string
	}{{[32]byte{2}, "mallory"}, {code, "<alice>"}} {
		l.publish(t, func(h eventlog.Header, lines []byte) nats.Header {
			return eventlog.Reminders(l.js, 0).In(of.WithKey(by.key)).Sealer().Encode(h, l.n, lines)
		}, by.customer)
	}
	text := seal.Text(code, of.UUID)
	key := filepath.Join(t.TempDir(), "seal.key")
	streamtest.Must(t, os.WriteFile(key, []byte(text+"\n"), 0o600))
	env := map[string]string{"SCRIP_NATS": l.url}
	for name, p := range map[string]*program{
		"blind": start(t, env, "--since", "start", "--name", "blind"),
		"flag":  start(t, env, "--since", "start", "--name", "flag", "--seal-key-file", key),
		"file":  start(t, map[string]string{"SCRIP_NATS": l.url, "SCRIP_SEAL_KEY_FILE": key}, "--since", "start", "--name", "file"),
		"text":  start(t, map[string]string{"SCRIP_NATS": l.url, "SCRIP_SEAL_KEY": text}, "--since", "start", "--name", "text"),
	} {
		p.out.await(t, func(text string) bool { return strings.Contains(text, "<alice>") }) // whose message is taken after mallory's
		p.stop()
		settled(t, l.js, name)
		var r push.Reminder
		first, _, _ := strings.Cut(p.out.String(), "\n")
		if err := json.Unmarshal([]byte(first), &r); err != nil || r.Campaign != "summer" || r.Key == "" || strings.Contains(p.out.String(), "mallory") != (name == "blind") {
			t.Errorf("%s: it printed %q, %v\n%s", name, p.out.String(), err, p.err.String())
		}
		if p.code != cli.ExitDone || !strings.Contains(p.err.String(), "failed tries 0; in dead letters 0") {
			t.Errorf("%s: exit code %d: %s", name, p.code, p.err.String())
		}
	}
	if p := run(t, map[string]string{"SCRIP_NATS": l.url, "SCRIP_SEAL_KEY": seal.Text(code, "another")}); p.code != cli.ExitFailed || !strings.Contains(p.err.String(), "scrip key seal") {
		t.Errorf("the key of another log: exit %d\n%s", p.code, p.err.String())
	}
	if p := run(t, env, "--seal-key-file", key+".gone"); p.code != cli.ExitUsage {
		t.Errorf("no file: exit %d\n%s", p.code, p.err.String())
	}
}
