package server

import (
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// maxProfileSeconds bounds how long one profile or trace may take, since it slows the server down.
const maxProfileSeconds = 60

// authorized is true if a request has the server's credentials, or the key of an operator who is limited to no campaigns. A
// server without credentials and keys authorizes no request.
func (s *server) authorized(r *http.Request) bool {
	p, known := s.sender(r)
	return known && p.May(access.OpDiagnose, "")
}

// sender is who sends a request, by the server's credentials or a key.
func (s *server) sender(r *http.Request) (p access.Principal, known bool) {
	if user, password, given := r.BasicAuth(); given {
		return access.Local(user), s.owns(user, password)
	}
	key, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	keys := s.registry.Load()
	if !given || keys == nil {
		return p, false
	}
	p, err := keys.Authenticate(strings.TrimSpace(key))
	return p, err == nil
}

// choosesTraces reports whether the sender of a request chooses whether it is sampled: an operator, or a key behind a
// trusted proxy.
func (s *server) choosesTraces(r *http.Request) bool {
	p, known := s.sender(r)
	return known && (web.Proxied(r) || p.May(access.OpDiagnose, ""))
}

// known is true if a request has the server's credentials, the key of anybody, or the cookie of a log-in.
func (s *server) known(r *http.Request) bool {
	if user, password, given := r.BasicAuth(); given {
		return s.owns(user, password)
	}
	if key, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); given {
		keys := s.registry.Load()
		if keys == nil {
			return true // nobody knows yet
		}
		_, err := keys.Authenticate(strings.TrimSpace(key))
		return err == nil
	}
	c := s.console.Load()
	return c != nil && c.LoggedIn(r)
}

// owns reports whether these are the server's credentials.
func (s *server) owns(user, password string) bool {
	want := s.credentials.String()
	got := datadir.Credentials{User: user, Password: password}.String()
	return want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

// guarded refuses requests without the server's credentials.
func (s *server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		good := s.authorized(r)
		web.Identified(w, good)
		if !good {
			w.Header().Set("WWW-Authenticate", `Bearer realm="scrip", Basic realm="scrip"`)
			web.New(web.Unauthorized, "give the key of an operator, or the server's credentials: http_url in scrip.json in its data directory has them").Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// briefly refuses profiles that take too long.
func briefly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := r.FormValue("seconds"); text != "" {
			if n, err := strconv.ParseFloat(text, 64); err != nil || !(n > 0 && n <= maxProfileSeconds) {
				web.New(web.Malformed, "seconds must be between 1 and "+strconv.Itoa(maxProfileSeconds)).Write(w)
				return
			}
		}
		// The read deadline would cancel a request whose response takes longer.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		next.ServeHTTP(w, r)
	})
}

// byName refuses requests to host names that are not this server's, unless they have its credentials. A web page whose
// name resolves to this machine (DNS rebinding) makes a browser here send such requests, with the page's name in the Host
// header. Addresses are accepted: no such page has an address of this server as its name.
func (s *server) byName(listen string, next http.Handler) http.Handler {
	names := append([]string{"localhost"}, s.opts.HTTPHosts...)
	if host, _, err := net.SplitHostPort(listen); err == nil && host != "" {
		names = append(names, host)
	}
	for i := range names {
		names[i] = plainName(names[i])
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Host
		if host, _, err := net.SplitHostPort(name); err == nil {
			name = host
		}
		address := net.ParseIP(strings.Trim(name, "[]")) != nil
		if !address && !slices.Contains(names, plainName(name)) && !s.authorized(r) {
			web.New(web.Misdirected, "this server does not accept that host name; to allow it, start the server with --http-host NAME").Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// plainName is a host name in the form for comparison.
func plainName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
