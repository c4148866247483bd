package web

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// TokenLife is how long a token can be used.
const TokenLife = time.Minute

// kept is what is remembered of a token: whose it is. The rights are those that the key has when the token is used.
type kept struct {
	Key     string    `json:"key,omitempty"`  // id; "" = the credentials of the data directory
	Name    string    `json:"name,omitempty"` // of who used those
	Expires time.Time `json:"expires"`
}

// MakeToken makes a token that stands for a principal in one request, which cannot have a header, such as that of an EventSource.
func (g *Gate) MakeToken(ctx context.Context, p access.Principal) (text string, expires time.Time, err error) {
	t := kept{Key: p.ID, Expires: time.Now().UTC().Add(TokenLife).Truncate(time.Second)}
	if p.ID == "" {
		t.Name = p.Name
	}
	value, err := json.Marshal(t)
	if err == nil {
		text = rand.Text()
		_, err = g.Tokens.Create(ctx, tokenName+text, value)
	}
	return text, t.Expires, err
}

const tokenName = "token "

// take uses a token up, and returns whose it is. A crash after that, and an answer that is lost, cost the client another token.
func (g *Gate) take(ctx context.Context, text string) (p access.Principal, problem *Problem) {
	value, ok, err := g.Tokens.Take(ctx, tokenName+text)
	var t kept
	switch {
	case err != nil:
		return p, New(Unavailable, "the token cannot be checked at the moment: "+err.Error())
	case !ok || json.Unmarshal(value, &t) != nil || time.Now().After(t.Expires):
		return p, unauthorized("the token is not known, was used before, or is too old; POST /v1/events/tokens makes another")
	case t.Key == "":
		return access.Principal{Name: t.Name, Role: access.Operator, Codes: true}, nil // as access.Local made it
	}
	p, err = g.Keys.Principal(t.Key)
	return p, unknown(err)
}
