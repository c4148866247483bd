package web

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/once"
	"github.com/seed-4a2410e3/scrip/streams/seal"
)

// LogInLife is how long after its log-in a browser must log in again.
const LogInLife = 12 * time.Hour

// LogIns are the sessions of browsers.
//
//	key, or the link of `scrip open` ──> cookie: sealed {id of the key, until} ──> each request: the key's rights as they are now
//
// The cookie is all there is of a session: it works at each server of the log, and while the log is away. It ends after LogInLife,
// when its key is revoked or replaced, and where the credentials of the data directory change, if it is theirs.
type LogIns struct {
	// Gate knows keys, and remembers tokens.
	Gate *Gate
	// Box seals cookies, alike at all servers.
	Box *seal.Box
	// Owner identifies the credentials of the data directory; others end the sessions that were made with them.
	Owner string
	// Secure: this server has TLS. Without it a browser is believed to come over TLS if the proxy in front has it so.
	Secure bool
	// Record records a log-in in the audit stream.
	Record func(p access.Principal, from string)
	// Now defaults to time.Now.
	Now func() time.Time

	once  sync.Once
	tries *Rates // by address
}

// logIn is what a cookie has.
type logIn struct {
	Key   string    `json:"key,omitempty"` // its id
	Owner string    `json:"owner,omitempty"`
	Name  string    `json:"name,omitempty"` // of an owner
	Until time.Time `json:"until"`
}

// asKey is the key of a context's principal.
type asKey struct{}

// As returns the context of a request that the process itself makes for a principal. A Gate lets it in without looking at its headers,
// and counts it against no rate: the page that it is made for was counted.
func As(ctx context.Context, p access.Principal) context.Context {
	return context.WithValue(ctx, asKey{}, p)
}

// Within returns the principal of a request of As.
func Within(ctx context.Context) (p access.Principal, ok bool) {
	p, ok = ctx.Value(asKey{}).(access.Principal)
	return p, ok
}

// Count counts a page against the rate of its viewer.
func (g *Gate) Count(w http.ResponseWriter, p access.Principal) *Problem {
	return g.Rates.take(w.Header(), p)
}

func (l *LogIns) now() time.Time {
	if l.Now != nil {
		return l.Now()
	}
	return time.Now()
}

// cookie is the name of the cookie. The prefix makes browsers refuse one that is not of this host, or came without TLS. Who writes
// the header of proxies without one gets no more by it than a cookie that his own browser drops.
func (l *LogIns) cookie(r *http.Request) (name string, secure bool) {
	if l.Secure || r.Header.Get("X-Forwarded-Proto") == "https" {
		return "__Host-scrip", true
	}
	return "scrip", false
}

const aboutLogIn = "log-in"

// Start starts a session.
func (l *LogIns) Start(w http.ResponseWriter, r *http.Request, p access.Principal) {
	of := logIn{Key: p.ID, Until: l.now().Add(LogInLife).UTC()}
	Identified(w, true)
	if p.ID == "" {
		of.Owner, of.Name = l.Owner, p.Name
	}
	text, _ := json.Marshal(of) // never fails
	l.set(w, r, base64.RawURLEncoding.EncodeToString(l.Box.Seal(text, aboutLogIn)), int(LogInLife/time.Second))
	if l.Record != nil {
		l.Record(p, r.RemoteAddr)
	}
}

// End ends the session of a browser.
func (l *LogIns) End(w http.ResponseWriter, r *http.Request) { l.set(w, r, "", -1) }

func (l *LogIns) set(w http.ResponseWriter, r *http.Request, value string, age int) {
	name, secure := l.cookie(r)
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: age, Secure: secure, HttpOnly: true, SameSite: http.SameSiteStrictMode})
}

// Who returns the principal of a browser's request with the rights that it has now, or the Problem 401.
func (l *LogIns) Who(r *http.Request) (access.Principal, *Problem) {
	name, _ := l.cookie(r)
	cookie, err := r.Cookie(name)
	if err != nil {
		return access.Principal{}, unauthorized("log in first")
	}
	var of logIn
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(cookie.Value)
	if err == nil {
		sealed, err = l.Box.Open(sealed, aboutLogIn)
	}
	if err == nil {
		err = json.Unmarshal(sealed, &of)
	}
	switch {
	case err != nil:
		return access.Principal{}, unauthorized("the session is not of this log; log in again")
	case !l.now().Before(of.Until):
		return access.Principal{}, unauthorized(fmt.Sprintf("the session ended %s after its log-in; log in again", LogInLife))
	case of.Key == "" && of.Owner != l.Owner:
		return access.Principal{}, unauthorized("the credentials of the server have changed; log in again")
	}
	return l.principal(of)
}

// principal returns whose log-in it is, with the rights that he has now.
func (l *LogIns) principal(of logIn) (access.Principal, *Problem) {
	if of.Key == "" {
		return access.Local(strings.TrimPrefix(of.Name, access.LocalName(""))), nil
	}
	p, err := l.Gate.Keys.Principal(of.Key)
	return opens(p, unknown(err))
}

// opens refuses who may not open the console.
func opens(p access.Principal, problem *Problem) (access.Principal, *Problem) {
	if problem == nil && p.CheckRole(access.OpOpenConsole) != nil {
		problem = New(Forbidden, fmt.Sprintf("a key of role %s does not open the console; one of these does: %v", p.Role, access.OpOpenConsole.Roles()))
	}
	return p, problem
}

// WithKey returns the principal of a key that was typed.
func (l *LogIns) WithKey(r *http.Request, key string) (access.Principal, *Problem) {
	if problem := l.take(r); problem != nil {
		return access.Principal{}, problem
	}
	return opens(l.Gate.bearer(key))
}

// MakeLogIn makes the token of a link that logs in as a principal, once.
func (g *Gate) MakeLogIn(ctx context.Context, p access.Principal) (token string, expires time.Time, err error) {
	token, expires = rand.Text(), time.Now().UTC().Add(TokenLife).Truncate(time.Second)
	text, _ := json.Marshal(logIn{Key: p.ID, Name: p.Name, Until: expires}) // never fails
	_, err = g.Tokens.Create(ctx, once.Owner{Client: p.Client(), For: once.Minute}, logInToken+token, text)
	return token, expires, err
}

// logInToken starts the names of such tokens, which open nothing else.
const logInToken = "log-in "

// WithToken uses a token up, and returns whose it is.
func (l *LogIns) WithToken(r *http.Request, token string) (p access.Principal, problem *Problem) {
	if problem = l.take(r); problem != nil {
		return p, problem
	}
	value, ok, err := l.Gate.Tokens.Take(r.Context(), logInToken+token)
	if err != nil {
		return p, New(Unavailable, "the link cannot be checked at the moment: "+err.Error())
	}
	var of logIn
	if !ok || json.Unmarshal(value, &of) != nil || !l.now().Before(of.Until) {
		return p, unauthorized("the link was used before, or is older than a minute; scrip open makes another")
	}
	return l.principal(of)
}

// policy is what pages may do: nothing but this server's own scripts, styles, forms and connections.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// LinkPath takes the token of a link from the file that `scrip open` hands to a browser.
const LinkPath = "/login/link"

// ofFile reports whether a request is the form of such a file. Any page can send it with Origin null, but needs a token
// for it, which works once, within a minute, and starts a session of the person who made the token.
func ofFile(r *http.Request) bool {
	h := r.Header
	return r.Method == http.MethodPost && r.URL.Path == LinkPath && h.Get("Origin") == "null" &&
		slices.Contains([]string{"", "navigate"}, h.Get("Sec-Fetch-Mode")) && slices.Contains([]string{"", "document"}, h.Get("Sec-Fetch-Dest"))
}

// Guard refuses forms of pages of other origins, but for that of [LinkPath], and sets the headers of pages.
func (l *LogIns) Guard(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		New(OriginNotAllowed, "the form is of a page of another origin; open the console itself").Write(w)
	}))
	protected := protection.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin") // with no-referrer, forms have Origin: null, which is refused where there is no Sec-Fetch-Site
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
		h.Set("Cache-Control", "no-store")
		if ofFile(r) {
			next.ServeHTTP(w, r)
			return
		}
		protected.ServeHTTP(w, r)
	})
}

// take counts a log-in of an address, of which there are twenty at once and then one a second.
func (l *LogIns) take(r *http.Request) *Problem {
	l.once.Do(func() { l.tries = NewRates(nil, nil) })
	if l.tries.bucket(Network(r.RemoteAddr).String(), Rate{PerSecond: 1, Burst: 20}, l.now()).AllowN(l.now(), 1) {
		return nil
	}
	return New(RateLimited, "too many log-ins from your address; wait a moment")
}
