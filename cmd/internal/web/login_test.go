package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/once"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// door is LogIns with the keys of a log.
type door struct {
	*LogIns
	log      topology.Log
	store    *access.Store
	registry *access.Registry
	recorded []string
}

func newDoor(t *testing.T) *door {
	t.Helper()
	js := streamtest.Start(t).JetStream(t)
	log, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, KeyFingerprint: "k"})
	streamtest.Must(t, err)
	d := &door{log: log, store: access.Open(js, access.Options{Logger: streamtest.Logger(t)})}
	d.registry = d.store.Registry()
	d.registry.InForce.Watch()
	streamtest.Background(t, d.registry.Run)
	<-d.registry.Ready()
	d.LogIns = &LogIns{Gate: &Gate{Keys: d.registry, Tokens: once.Open(js, [32]byte{7}, log.UUID)}, Box: box(7, log.UUID), Owner: "these", Now: time.Now,
		Record: func(p access.Principal, from string) { d.recorded = append(d.recorded, p.Name+" "+from) }}
	return d
}

func box(secret byte, log string) *seal.Box {
	return seal.NewBox([32]byte{secret}, log, "log-ins of a test")
}

var ann = access.Author{Principal: access.Local("ann")}

// key makes a key that is in force.
func (d *door) key(t *testing.T, role access.Role) (secret, id string) {
	t.Helper()
	k, secret, err := d.store.Create(t.Context(), access.New{Name: "a " + role.String(), Role: role}, ann)
	streamtest.Must(t, err)
	d.becomes(t, k.ID, true)
	return secret, k.ID
}

// becomes waits until a key is in force, or is not any more.
func (d *door) becomes(t *testing.T, id string, in bool) {
	t.Helper()
	is := func(uint64) bool { _, err := d.registry.Principal(id); return (err == nil) == in }
	if !is(0) {
		d.registry.InForce.WaitFor(t, is)
	}
}

// visit is a request of a browser from an address with a cookie; nil = none.
func visit(cookie *http.Cookie) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8080/", nil)
	if cookie != nil {
		r.AddCookie(cookie)
	}
	return r
}

// start logs a principal in, and returns the cookie.
func (d *door) start(t *testing.T, p access.Principal) *http.Cookie {
	t.Helper()
	w := httptest.NewRecorder()
	d.Start(w, visit(nil), p)
	return w.Result().Cookies()[0]
}

// is checks whose the session of a cookie is, or the status with which it is refused, and what that names.
func (d *door) is(t *testing.T, what string, cookie *http.Cookie, want string, names ...string) {
	t.Helper()
	p, problem := d.Who(visit(cookie))
	checkDoor(t, what, p, problem, want, names...)
}

func checkDoor(t *testing.T, what string, p access.Principal, problem *Problem, want string, names ...string) {
	t.Helper()
	got := p.Name
	if problem != nil {
		got = fmt.Sprint(problem.Status)
	}
	if got != want || problem != nil && slices.ContainsFunc(names, func(s string) bool { return !strings.Contains(problem.Detail, s) }) {
		t.Errorf("%s: %q, %v; want %s %v", what, p.Name, problem, want, names)
	}
}

// TestWhoIsLoggedIn: a session is its key's as that is now, for twelve hours, at the servers of one log.
func TestWhoIsLoggedIn(t *testing.T) {
	d := newDoor(t)
	_, id := d.key(t, access.Support)
	of := func(id string) access.Principal { p, _ := d.registry.Principal(id); return p }
	support, owner := d.start(t, of(id)), d.start(t, access.Local("ann@ops1"))
	if slices.Sort(d.recorded); !slices.Equal(d.recorded, []string{"a support 192.0.2.1:1234", "local:ann@ops1 192.0.2.1:1234"}) {
		t.Errorf("recorded: %q", d.recorded)
	}
	d.is(t, "a key", support, "a support")
	d.is(t, "the owner", owner, "local:ann@ops1")
	d.is(t, "no cookie", nil, "401")

	last := support.Value[len(support.Value)-1:]
	for what, value := range map[string]string{
		"altered":    support.Value[:9] + string(support.Value[9]^1) + support.Value[10:],
		"cut":        support.Value[:len(support.Value)-1],
		"continued":  support.Value + "A",
		"no base64":  "%" + support.Value[1:],
		"empty":      "",
		"not sealed": "eyJuYW1lIjoiYW5uIn0",
		"other bits": strings.TrimSuffix(support.Value, last) + string(last[0]+1), // of the last character only some count
	} {
		altered := *support
		altered.Value = value
		d.is(t, what, &altered, "401", "log in again")
	}
	for what, other := range map[string]*seal.Box{"of another secret": box(8, d.log.UUID), "of another log": box(7, "another")} {
		elsewhere := &door{LogIns: &LogIns{Gate: d.Gate, Box: other, Owner: d.Owner}}
		d.is(t, what, elsewhere.start(t, access.Local("ann")), "401", "not of this log")
	}
	sealed := *owner // by the same box, about another thing
	sealed.Value = string(d.Box.Seal([]byte(`{"owner":"these"}`), "a page token"))
	d.is(t, "a page token", &sealed, "401")

	d.Owner = "others"
	d.is(t, "the owner, after the credentials have changed", owner, "401", "credentials")
	d.is(t, "a key then", support, "a support")

	now := time.Now()
	d.Now = func() time.Time { return now.Add(LogInLife - time.Minute) }
	d.is(t, "at the end of the day", support, "a support")
	d.Now = func() time.Time { return now.Add(LogInLife + time.Minute) }
	d.is(t, "after the day", support, "401", "12h")
	d.Now = time.Now

	_, err := d.store.Revoke(t.Context(), id, ann)
	streamtest.Must(t, err)
	d.becomes(t, id, false)
	d.is(t, "a stolen cookie of a key that was revoked", support, "401", "revoked")

	_, id = d.key(t, access.Analyst)
	analyst := d.start(t, of(id))
	d.is(t, "an analyst", analyst, "a analyst")
	_, _, err = d.store.Rotate(t.Context(), id, 0, ann)
	streamtest.Must(t, err)
	d.becomes(t, id, false)
	d.is(t, "a key that was replaced", analyst, "401", "revoked")

	for _, role := range []access.Role{access.Producer, access.Sender} {
		_, id := d.key(t, role)
		d.is(t, role.String(), d.start(t, of(id)), "403", "role "+role.String(), "analyst support operator")
	}
}

// TestLogIns: by a key or a link, each once and of its own kind, and not for ever.
func TestLogIns(t *testing.T) {
	d := newDoor(t)
	secret, id := d.key(t, access.Operator)
	producer, _ := d.key(t, access.Producer)
	key := func(what, key, want string, names ...string) {
		t.Helper()
		p, problem := d.WithKey(visit(nil), key)
		checkDoor(t, what, p, problem, want, names...)
	}
	key("a key", secret, "a operator")
	key("none", "", "401")
	key("another", secret+"x", "401")
	key("a producer's", producer, "403", "role producer", "analyst support operator")

	link := func(what, token, want string, names ...string) {
		t.Helper()
		p, problem := d.WithToken(visit(nil), token)
		checkDoor(t, what, p, problem, want, names...)
	}
	made := func(p access.Principal) string {
		token, _, err := d.Gate.MakeLogIn(t.Context(), p)
		streamtest.Must(t, err)
		return token
	}
	of, _ := d.registry.Principal(id)
	once, owner, old := made(of), made(access.Local("ann@ops1")), made(of)
	link("a link", once, "a operator")
	link("again", once, "401", "used before")
	link("the owner's", owner, "local:ann@ops1")
	link("none", "", "401")
	d.Now = func() time.Time { return time.Now().Add(TokenLife) }
	link("too old", old, "401", "older than a minute")
	d.Now = time.Now

	events, _, err := d.Gate.MakeToken(t.Context(), of)
	streamtest.Must(t, err)
	link("a token of events", events, "401")
	login := made(of)
	if p, problem := d.Gate.take(t.Context(), login); problem == nil {
		t.Errorf("a link reads events as %s", p.Name)
	}
	link("a link after that", login, "a operator")
	revoked := made(of)
	_, err = d.store.Revoke(t.Context(), id, ann)
	streamtest.Must(t, err)
	d.becomes(t, id, false)
	link("of a key that was revoked since", revoked, "401", "revoked")

	now := time.Now()
	d.Now = func() time.Time { return now }
	for range 30 { // more than the burst
		_, _ = d.WithKey(visit(nil), "guess")
	}
	key("after too many", secret, "429")
	other := visit(nil)
	other.RemoteAddr = "198.51.100.9:1"
	if _, problem := d.WithKey(other, "guess"); problem.Status != 401 {
		t.Errorf("of another address: %v", problem)
	}
	d.Now = func() time.Time { return now.Add(2 * time.Second) }
	key("later", "guess", "401")
}

// TestCookie: no script reads it, no other site sends it, and over TLS no one else sets it.
func TestCookie(t *testing.T) {
	for _, c := range []struct {
		tls, proxied bool
		want         string
	}{
		{false, false, "scrip=V; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"},
		{true, false, "__Host-scrip=V; Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict"},
		{false, true, "__Host-scrip=V; Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict"},
	} {
		l := &LogIns{Box: box(7, "a log"), Secure: c.tls}
		r := visit(nil)
		if c.proxied {
			r.Header.Set("X-Forwarded-Proto", "https")
		}
		w, ended := httptest.NewRecorder(), httptest.NewRecorder()
		l.Start(w, r, access.Local("ann"))
		cookie := w.Result().Cookies()[0]
		if got := strings.Replace(w.Header().Get("Set-Cookie"), cookie.Value, "V", 1); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		r.AddCookie(cookie)
		if _, problem := l.Who(r); problem != nil {
			t.Errorf("%+v: %v", c, problem)
		}
		if l.End(ended, r); !strings.HasPrefix(ended.Header().Get("Set-Cookie"), cookie.Name+"=; Path=/; Max-Age=0;") {
			t.Errorf("%+v, ended: %s", c, ended.Header().Get("Set-Cookie"))
		}
	}
}

// TestGuard: forms of other origins change nothing, and pages run nothing that this server does not have.
func TestGuard(t *testing.T) {
	reached := false
	h := (&LogIns{}).Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	for _, c := range []struct {
		method, site, origin string
		passes               bool
	}{
		{"POST", "same-origin", "http://127.0.0.1:8080", true}, {"POST", "none", "", true}, {"POST", "", "http://127.0.0.1:8080", true}, {"POST", "", "", true},
		{"POST", "cross-site", "https://evil.example", false}, {"POST", "same-site", "http://127.0.0.1:9", false}, {"POST", "", "https://evil.example", false},
		{"POST", "", "null", false}, {"POST", "", "http://127.0.0.1:9", false}, {"DELETE", "cross-site", "https://evil.example", false},
		{"GET", "cross-site", "", true},
	} {
		r := httptest.NewRequest(c.method, "http://127.0.0.1:8080/acts/voidCoupon", nil)
		for name, value := range map[string]string{"Sec-Fetch-Site": c.site, "Origin": c.origin} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		reached = false
		h.ServeHTTP(w, r)
		if reached != c.passes || !c.passes && (w.Code != 403 || !strings.Contains(w.Body.String(), "origin_not_allowed")) {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
		if got := w.Header(); !strings.HasPrefix(got.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; ") || got.Get("X-Content-Type-Options") != "nosniff" ||
			got.Get("Referrer-Policy") != "same-origin" || got.Get("Cross-Origin-Opener-Policy") != "same-origin" || got.Get("Cross-Origin-Resource-Policy") != "same-origin" ||
			got.Get("Permissions-Policy") == "" || got.Get("Cache-Control") != "no-store" || strings.Contains(got.Get("Content-Security-Policy"), "unsafe") {
			t.Errorf("%+v: headers %v", c, got)
		}
	}
}

// TestTheFormOfAFile: the log-in by the file of `scrip open` is the one form that a page without an origin may send,
// and not in a frame.
func TestTheFormOfAFile(t *testing.T) {
	reached := false
	h := (&LogIns{}).Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	for _, c := range []struct {
		method, path, origin, site, mode, dest string
		passes                                 bool
	}{
		{"POST", LinkPath, "null", "cross-site", "navigate", "document", true}, {"POST", LinkPath, "null", "", "", "", true},
		{"POST", LinkPath, "null", "cross-site", "navigate", "iframe", false}, {"POST", LinkPath, "null", "cross-site", "no-cors", "empty", false},
		{"POST", LinkPath, "https://evil.example", "cross-site", "navigate", "document", false}, {"POST", LinkPath, "", "cross-site", "navigate", "document", false},
		{"POST", "/login", "null", "cross-site", "navigate", "document", false}, {"POST", LinkPath + "/", "null", "cross-site", "navigate", "document", false},
		{"PUT", LinkPath, "null", "cross-site", "navigate", "document", false}, {"POST", "/logout", "null", "", "", "", false},
	} {
		r := httptest.NewRequest(c.method, "http://127.0.0.1:8080"+c.path, nil)
		for name, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site, "Sec-Fetch-Mode": c.mode, "Sec-Fetch-Dest": c.dest} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		reached = false
		if h.ServeHTTP(w, r); reached != c.passes {
			t.Errorf("%+v: %d, reached %v", c, w.Code, reached)
		}
	}
}

// TestWithin: a request of the process itself is its principal's, whatever headers it has, and is counted once, by its page.
func TestWithin(t *testing.T) {
	g := testGate()
	g.Rates = NewRates(func() Rate { return Rate{1, 2} }, nil)
	shop, _ := g.Keys.Principal("shop")
	r := visit(nil).WithContext(As(context.Background(), shop))
	r.Header.Set("Authorization", "Bearer analyst")
	for range 5 {
		if p, problem := g.Enter(httptest.NewRecorder(), r, ""); problem != nil || p.Name != "shop" {
			t.Fatalf("%+v, %v", p, problem)
		}
	}
	for i, want := range []bool{true, true, false} {
		if problem := g.Count(httptest.NewRecorder(), shop); (problem == nil) != want {
			t.Errorf("page %d: %v", i, problem)
		}
	}
}
