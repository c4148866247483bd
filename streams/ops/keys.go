package ops

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// CreateKey is a key to be made.
type CreateKey struct {
	Name      string      `json:"name" doc:"What events show as by, for support and operators."`
	Role      access.Role `json:"role" enum:"producer,sender,analyst,support,operator" doc:"What its user may do."`
	Campaigns []string    `json:"campaigns,omitempty" nullable:"false" doc:"That it is limited to; absent = all."`
	Public    bool        `json:"public,omitempty" doc:"A producer whose key may be in a browser: it may claim and validate only."`
	Origins   []string    `json:"origins,omitempty" nullable:"false" doc:"Of pages that may use a public key, such as https://shop.example; at most 20."`
	Codes     bool        `json:"codes,omitempty" doc:"It sees codes in clear."`
	Customers bool        `json:"customers,omitempty" doc:"It sees ids of customers in clear, also those that its requests do not name."`
	Rate      int         `json:"rate,omitempty" minimum:"1" maximum:"1000000" doc:"Requests a second at each server, over HTTP and NATS together; each line of /v1/commands counts as one, too. Absent = any number over NATS, and that of setting http.rate over HTTP."`
}

// MadeKey is a key with its secret.
type MadeKey struct {
	access.Key
	Secret string `json:"secret" doc:"What its user presents. It cannot be read again."`
	// PostgresURL is of an analyst.
	PostgresURL string `json:"postgres_url,omitempty" doc:"Of an analyst: where psql reads schema scrip, within a second; the password is the secret."`
}

// CreateKey makes a key.
func (o *Ops) CreateKey(ctx context.Context, who Caller, q CreateKey) (MadeKey, error) {
	k, secret, err := o.Keys.Create(ctx, access.New{Name: q.Name, Role: q.Role, Campaigns: q.Campaigns, Public: q.Public, Origins: q.Origins,
		Codes: q.Codes, Customers: q.Customers, Rate: q.Rate}, who)
	return o.made(k, secret, err)
}

func (o *Ops) made(k access.Key, secret string, err error) (MadeKey, error) {
	made := MadeKey{Key: k, Secret: secret}
	if err == nil && o.PostgresURL != nil {
		made.PostgresURL = o.PostgresURL(&k)
	}
	return made, err
}

// ListKeys lists keys without their secrets, also those that have ended, oldest first.
func (o *Ops) ListKeys(ctx context.Context, _ Caller, q Paging) (Page[access.Key], error) {
	all, err := o.Keys.List(ctx)
	if err != nil {
		return Page[access.Key]{}, err
	}
	return PageOf(all, q, func(k *access.Key) string { return k.ID })
}

// NamedKey names a key.
type NamedKey struct {
	Key string `json:"key" doc:"Its id or its name."`
}

// ShowKey shows a key without its secret, of a name the newest.
func (o *Ops) ShowKey(ctx context.Context, _ Caller, q NamedKey) (access.Key, error) {
	all, err := o.Keys.List(ctx)
	for _, k := range slices.Backward(all) {
		if k.ID == q.Key || k.Name == q.Key {
			return k, nil
		}
	}
	return access.Key{}, cmp.Or(err, access.ErrNoSuchKey)
}

// RevokeKey names a key.
type RevokeKey struct {
	Key string `json:"key" doc:"Its id; or a name: all its keys."`
}

// RevokeKey ends keys at once.
func (o *Ops) RevokeKey(ctx context.Context, who Caller, q RevokeKey) (access.Key, error) {
	return o.Keys.Revoke(ctx, q.Key, who)
}

// RotateKey names a key that is replaced.
type RotateKey struct {
	NamedKey
	Overlap wire.Period `json:"overlap,omitempty" doc:"How long the old one goes on working, a Go duration up to 720h; absent = it ends at once."`
}

// RotateKey replaces a key by one with the same name and rights.
func (o *Ops) RotateKey(ctx context.Context, who Caller, q RotateKey) (MadeKey, error) {
	k, secret, err := o.Keys.Rotate(ctx, q.Key, time.Duration(q.Overlap), who)
	return o.made(k, secret, err)
}
