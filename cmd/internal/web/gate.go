package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// CampaignValue is the name of the path wildcard that holds a campaign's name, in every route that has one.
const CampaignValue = "campaign"

// Keys are the keys that open this server; an access.Registry.
type Keys interface {
	// Authenticate returns the principal of a key. Its errors are access.ErrUnknownKey, access.ErrRevoked, or another one when
	// the key could not be checked.
	Authenticate(key string) (access.Principal, error)
}

// Gate authenticates requests and checks what they may do. The zero value refuses all.
type Gate struct {
	// Keys are checked for Authorization: Bearer. Nil = there are none.
	Keys Keys
	// Owner reports whether a user name and password, of Authorization: Basic, are the credentials of the server's data
	// directory. They have the rights of an operator. Nil = there are none.
	Owner func(user, password string) bool
	// Rates bounds the requests of each key. Nil = there is no bound.
	Rates *Rates
}

// Enter identifies the sender of a new request and counts the request against its rate. It sets headers of the answer, also of a
// refusal.
func (g *Gate) Enter(w http.ResponseWriter, r *http.Request) (access.Principal, *Problem) {
	p, problem := g.Identify(r)
	if problem == nil {
		problem = g.Rates.take(w.Header(), p)
	}
	return p, problem
}

// Identify returns the principal of a request, or the Problem 401.
func (g *Gate) Identify(r *http.Request) (access.Principal, *Problem) {
	header := r.Header["Authorization"]
	if len(header) == 0 {
		return access.Principal{}, unauthorized("send a key: Authorization: Bearer KEY (scrip access create makes one), or the credentials in http_url of scrip.json")
	}
	if len(header) > 1 {
		return access.Principal{}, unauthorized("the header Authorization is given twice; send it once")
	}
	scheme, key, _ := strings.Cut(header[0], " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		return g.bearer(strings.TrimSpace(key))
	case strings.EqualFold(scheme, "Basic"):
		user, password, ok := r.BasicAuth()
		if ok && g.Owner != nil && g.Owner(user, password) {
			return access.Local(user), nil // no key has such a name
		}
		return access.Principal{}, unauthorized("these are not the credentials in http_url of scrip.json")
	}
	return access.Principal{}, unauthorized("Authorization must start with Bearer (a key) or Basic (the credentials in scrip.json)")
}

func (g *Gate) bearer(key string) (access.Principal, *Problem) {
	if g.Keys == nil {
		return access.Principal{}, unauthorized("this server has no keys; send the credentials in http_url of scrip.json")
	}
	p, err := g.Keys.Authenticate(key)
	switch {
	case err == nil:
		return p, nil
	case errors.Is(err, access.ErrRevoked):
		return access.Principal{}, unauthorized("the key was revoked; scrip access create makes another")
	case errors.Is(err, access.ErrUnknownKey):
		return access.Principal{}, unauthorized("the key is not known; scrip access list shows those that are")
	}
	return access.Principal{}, New(Unavailable, "the key cannot be checked at the moment: "+err.Error())
}

// Check returns nil if p may do o to a campaign, else the Problem 403. campaign "" = the request names none: then a principal
// that is limited to campaigns is refused.
func Check(p access.Principal, o access.Operation, campaign string) *Problem {
	return forbidden(p.Check(o, campaign))
}

// CheckRole is Check without the campaign: its caller checks that as soon as it is known.
func CheckRole(p access.Principal, o access.Operation) *Problem { return forbidden(p.CheckRole(o)) }

func forbidden(why error) *Problem {
	if why == nil {
		return nil
	}
	return New(Forbidden, why.Error())
}

func unauthorized(detail string) *Problem {
	p := New(Unauthorized, detail)
	p.header("WWW-Authenticate", `Bearer realm="scrip", Basic realm="scrip"`)
	return p
}
