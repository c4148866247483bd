package web

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/once"
)

// TokenLife is how long a token can be used.
const TokenLife = once.Minute

// MakeToken makes a token that stands for a principal in one request which cannot have a header, such as that of an EventSource. Its
// rights are those that the key has then.
func (g *Gate) MakeToken(ctx context.Context, p access.Principal) (token string, expires time.Time, err error) {
	token, expires = rand.Text(), time.Now().UTC().Add(TokenLife).Truncate(time.Second)
	_, err = g.Tokens.Create(ctx, once.Owner{Client: p.Client(), For: once.Minute}, "token "+token, fmt.Appendf(nil, "%d %s", expires.Unix(), p.ID))
	return token, expires, err
}

// take uses a token up, and returns whose it is. A crash after that, and an answer that is lost, cost the client another token.
func (g *Gate) take(ctx context.Context, token string) (p access.Principal, problem *Problem) {
	value, ok, err := g.Tokens.Take(ctx, "token "+token)
	until, id, _ := strings.Cut(string(value), " ")
	expires, _ := strconv.ParseInt(until, 10, 64)
	switch {
	case err != nil:
		return p, New(Unavailable, "the token cannot be checked at the moment: "+err.Error())
	case !ok || time.Now().Unix() >= expires:
		return p, unauthorized("the token is not known, was used before, or is too old; POST /v1/events/tokens makes another")
	case id == "": // the credentials of the data directory
		return access.Local(""), nil
	}
	p, err = g.Keys.Principal(id)
	return p, unknown(err)
}
