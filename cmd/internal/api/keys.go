package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// Key is a key without its secret.
type Key struct{ access.Key }

// TransformSchema lets later versions add fields.
func (Key) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema { return open(s) }

// NewKey is a key with its secret.
type NewKey struct {
	Body struct {
		Key    Key    `json:"key"`
		Secret string `json:"secret" doc:"What its user presents. It cannot be read again."`
	}
}

// Keys are keys.
type Keys struct {
	Body struct {
		Keys []Key  `json:"keys" nullable:"false" doc:"Also those that have ended, oldest first."`
		Next string `json:"next,omitempty" doc:"The value of after for the next page; absent on the last one."`
	}
}

func (a *API) keyRoutes() {
	list := Route{Tag: "operation", Operation: access.OpManageKeys}
	with := func(method, path, id, summary, about string, status int) Route {
		r := list
		r.Method, r.Path, r.ID, r.Summary, r.About, r.Status = method, path, id, summary, about, status
		return r
	}
	Register(a, with(http.MethodGet, "/v1/keys", "listKeys", "List keys", "", 0), a.listKeys)
	Register(a, with(http.MethodPost, "/v1/keys", "createKey", "Make a key",
		"The secret is in this answer only. If the answer is lost, revoke the key and make another.", http.StatusCreated), a.createKey)
	Register(a, with(http.MethodPost, "/v1/keys/{key}/rotate", "rotateKey", "Replace a key",
		"The new one has the same name and rights. The old one ends when the overlap is over.", http.StatusCreated), a.rotateKey)
	Register(a, with(http.MethodDelete, "/v1/keys/{key}", "revokeKey", "Revoke a key",
		"In force at every server within a second; streams in progress end. By a name, all its keys, also one within its overlap. A key that was revoked stays so.", 0), a.revokeKey)
}

// keyPlace is the end of a page.
type keyPlace struct{ After string }

func (a *API) listKeys(ctx context.Context, in *Paging) (*Keys, error) {
	at, err := parseCursor[keyPlace]("keys", in.After)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	page, next, err := a.Keys.Page(ctx, at.After, in.Limit)
	if errors.Is(err, access.ErrInvalid) {
		return nil, keyProblem(err)
	}
	if err != nil {
		return nil, unavailable("the keys cannot be read", err)
	}
	out := &Keys{}
	out.Body.Keys = make([]Key, len(page))
	for i := range page {
		out.Body.Keys[i] = Key{page[i]}
	}
	if next != "" {
		out.Body.Next = cursor("keys", keyPlace{next})
	}
	return out, nil
}

func (a *API) createKey(ctx context.Context, in *struct {
	Body struct {
		Name      string   `json:"name" doc:"What events show as by, for support and operators."`
		Role      string   `json:"role" enum:"producer,sender,analyst,support,operator"`
		Campaigns []string `json:"campaigns,omitempty" nullable:"false" doc:"That it is limited to; absent = all."`
		Public    bool     `json:"public,omitempty" doc:"A producer whose key may be in a browser: it may claim and validate only."`
		Codes     bool     `json:"codes,omitempty" doc:"It sees codes in clear."`
		Rate      int      `json:"rate,omitempty" minimum:"1" maximum:"1000000" doc:"Requests a second at each server, over HTTP and NATS together; each line of /v1/commands counts as one, too. Absent = any number over NATS, and that of setting http.rate over HTTP."`
	}
}) (*NewKey, error) {
	role, err := access.ParseRole(in.Body.Role)
	if err != nil {
		return nil, web.New(web.Code(wire.Invalid), err.Error()).At("body.role", err.Error())
	}
	wanted := access.New{Name: in.Body.Name, Role: role, Campaigns: in.Body.Campaigns, Public: in.Body.Public, Codes: in.Body.Codes, Rate: in.Body.Rate}
	ctx, cancel := context.WithTimeout(ctx, commandWait)
	defer cancel()
	return made(a.Keys.Create(ctx, wanted, author(ctx)))
}

func (a *API) rotateKey(ctx context.Context, in *struct {
	Key  string `path:"key" maxLength:"64" doc:"Its id or its name."`
	Body struct {
		Overlap string `json:"overlap,omitempty" doc:"How long the old one goes on working, a Go duration up to 720h; absent = it ends at once."`
	}
}) (*NewKey, error) {
	overlap := time.Duration(0)
	if in.Body.Overlap != "" {
		var err error
		if overlap, err = time.ParseDuration(in.Body.Overlap); err != nil {
			return nil, web.New(web.Code(wire.Invalid), "overlap: must be a duration such as 24h").At("body.overlap", "must be a duration such as 24h")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, commandWait)
	defer cancel()
	return made(a.Keys.Rotate(ctx, in.Key, overlap, author(ctx)))
}

// made is the answer with a new key, or the problem.
func made(k access.Key, secret string, err error) (*NewKey, error) {
	if err != nil {
		return nil, keyProblem(err)
	}
	out := &NewKey{}
	out.Body.Key, out.Body.Secret = Key{k}, secret
	return out, nil
}

func (a *API) revokeKey(ctx context.Context, in *struct {
	Key string `path:"key" maxLength:"64" doc:"Its id or its name."`
}) (*struct{ Body Key }, error) {
	ctx, cancel := context.WithTimeout(ctx, commandWait)
	defer cancel()
	k, err := a.Keys.Revoke(ctx, in.Key, author(ctx))
	if err != nil {
		return nil, keyProblem(err)
	}
	return &struct{ Body Key }{Key{k}}, nil
}

// keyProblem is the problem of a change of the keys.
func keyProblem(err error) error {
	switch {
	case errors.Is(err, access.ErrForbidden):
		return web.New(web.Forbidden, err.Error())
	case errors.Is(err, access.ErrInvalid):
		return web.New(web.Code(wire.Invalid), err.Error())
	case errors.Is(err, access.ErrNoSuchKey):
		return web.New(web.NotFound, err.Error())
	case errors.Is(err, access.ErrNameTaken):
		return web.New("name_taken", err.Error())
	case errors.Is(err, access.ErrEnded):
		return web.New("key_ended", err.Error())
	case errors.Is(err, access.ErrUnknown), errors.Is(err, access.ErrUnrecorded):
		return web.New(web.UnknownOutcome, err.Error())
	}
	return unavailable("the key was not changed", err)
}
