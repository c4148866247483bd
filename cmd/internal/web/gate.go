package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

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

// ErrRevoked is the cause of the end of a session whose key was revoked or replaced.
var ErrRevoked = errors.New("the key was revoked")

// Sessions are the requests in progress that outlive their check: streams. When a key is revoked or replaced, the contexts of
// its sessions end.
type Sessions struct {
	mu   sync.Mutex
	open map[string]map[*session]struct{} // by id of the key
}

// session is one request in progress.
type session struct{ cancel context.CancelCauseFunc }

// Start returns a context that ends with ctx, or with cause ErrRevoked when the key of p is revoked. end must be called.
// Credentials of the data directory are not revoked while a server runs.
func (s *Sessions) Start(ctx context.Context, p access.Principal) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if p.ID == "" {
		return ctx, func() { cancel(nil) }
	}
	one := &session{cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]map[*session]struct{}{}
	}
	if s.open[p.ID] == nil {
		s.open[p.ID] = map[*session]struct{}{}
	}
	s.open[p.ID][one] = struct{}{}
	return ctx, func() {
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.open[p.ID], one); len(s.open[p.ID]) == 0 {
			delete(s.open, p.ID)
		}
	}
}

// Revoke ends the sessions of a key. It is for access.Registry.Watch.
//
// A key may be revoked between its check and Start: Start's caller checks it again afterwards, with [Gate.Identify].
func (s *Sessions) Revoke(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.open[id] {
		one.cancel(ErrRevoked)
	}
}
