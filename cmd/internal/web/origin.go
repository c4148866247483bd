package web

import (
	"net/http"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// A page of another origin uses a public key so (CORS):
//
//	OPTIONS, Origin ──────────────> 204 if any key in force is for that origin: a preflight names no key
//	POST, Origin, Authorization ──> the answer, or 403 origin_not_allowed, before any effect, if that key is not for it
//
// A page of this server's own origin, and a client that is no browser, need no permission; other keys get none.
//
// A browser adds the credentials of the data directory, Authorization: Basic, to requests of any page once a person has
// given them. So a request that changes something and has no key is refused in a page of another origin. A key only its
// own page knows.

var ownPages = http.NewCrossOriginProtection()

// foreignPage refuses such a request.
func foreignPage(r *http.Request) *Problem {
	if scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") || ownPages.Check(r) == nil {
		return nil
	}
	return New(OriginNotAllowed, "a page of another origin sends this without a key; open the console itself, or send Authorization: Bearer KEY").
		At("header.Origin", "not the origin of this server")
}

// checkOrigin refuses a public key in a page that it is not for, and lets the page read the answer otherwise.
func checkOrigin(w http.ResponseWriter, r *http.Request, p access.Principal) *Problem {
	origin := r.Header.Get("Origin")
	if origin == "" || !p.Public {
		return nil
	}
	w.Header().Add("Vary", "Origin")
	if slices.Contains(p.Origins, origin) {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Expose-Headers", "Idempotency-Replayed, Scrip-Command-Id, Retry-After, X-Request-Id, Location")
		return nil
	}
	if strings.HasSuffix(origin, "://"+r.Host) {
		return nil
	}
	return New(OriginNotAllowed, "this public key is not for pages of that origin; scrip access create --public --origin makes one").
		At("header.Origin", "not among the origins of the key")
}

// Preflight answers what a browser requests before it sends a method to a route from a page of another origin.
func (g *Gate) Preflight(method string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h, origin := w.Header(), r.Header.Get("Origin")
		h.Add("Vary", "Origin")
		if g.Keys == nil || !g.Keys.AllowsOrigin(origin) {
			New(OriginNotAllowed, "no public key is for pages of that origin").At("header.Origin", "not among the origins of a key").Write(w)
			return
		}
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Methods", method)
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, X-Request-Id")
		h.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	}
}
