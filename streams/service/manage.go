package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

// manageKind is a request of operators that is no command and no query of a lane: about keys, settings, the audit stream, the
// status, dead letters. What it changes is recorded in the audit stream before it is answered.
type manageKind struct {
	name   string
	takes  string // a first field campaign is what a key may be limited to
	answer func(s *Service, ctx context.Context, p access.Principal, data []byte) (any, error)
}

// managing are these requests.
var managing = []manageKind{
	{"access.create", "name, role, campaigns, public, codes, rate", reads(hasKeys, (*Service).createKey)},
	{"access.list", "after, limit", reads(hasKeys, (*Service).listKeys)},
	{"access.revoke", "key", reads(hasKeys, (*Service).revokeKey)},
	{"access.rotate", "key, overlap", reads(hasKeys, (*Service).rotateKey)},
	{"config.get", "setting", reads(hasSettings, (*Service).readSettings)},
	{"config.set", "setting, value", reads(hasSettings, (*Service).setSetting)},
	{"config.history", "setting, limit", reads(hasSettings, (*Service).listSettings)},
	{"audit.list", "actor, kind, since, until, limit", reads(hasAudit, (*Service).listAudit)},
	{"codes.export", "campaign", reads(hasAudit, (*Service).recordExport)},
	{"status.show", "", reads(hasStatus, (*Service).readStatus)},
	{"deadletter.list", "stream, lane, since, state, limit, before", reads(hasLetters, (*Service).listLetters)},
}

// reads answers requests whose fields are those of T, at a server that has what they are about.
func reads[T any](has func(*Options) bool, answer func(*Service, context.Context, access.Principal, T) (any, error)) func(*Service, context.Context, access.Principal, []byte) (any, error) {
	return func(s *Service, ctx context.Context, p access.Principal, data []byte) (any, error) {
		var q T
		if !has(&s.opts) {
			return nil, errNotHere
		}
		if err := strictly(data, &q); err != nil {
			return nil, err
		}
		return answer(s, ctx, p, q)
	}
}

func hasKeys(o *Options) bool     { return o.KeyStore != nil }
func hasSettings(o *Options) bool { return o.Settings != nil }
func hasAudit(o *Options) bool    { return o.Audit != nil }
func hasStatus(o *Options) bool   { return o.Status != nil }
func hasLetters(o *Options) bool  { return o.DeadLetters != nil }

// MadeKey is the answer to access.create and access.rotate.
type MadeKey struct {
	access.Key
	// Secret is the key as its user presents it. It cannot be read again.
	Secret string `json:"secret"`
}

// KeyPage is the answer to access.list, oldest first.
type KeyPage struct {
	Keys []access.Key `json:"keys"`
	// Next is the value of after for the next page, "" on the last one.
	Next string `json:"next,omitempty"`
}

// AuditPage is the answer to audit.list, oldest first.
type AuditPage struct {
	Entries []audit.Entry `json:"entries"`
	// More is true if there are older entries.
	More bool `json:"more,omitempty"`
}

const (
	// headerRoom is left of a message for what NATS adds, in bytes.
	headerRoom = 1 << 10
	// mostAudited is the most entries of one answer, and defaultAudited the default.
	mostAudited    = 1000
	defaultAudited = 100
)

// errNotHere: a server without the parts that these requests need.
var errNotHere = errors.New("this server does not serve it")

// refusal is an error that is answered as an outcome: nothing was done.
type refusal struct {
	code wire.Refusal
	err  error
}

func (e *refusal) Error() string { return e.err.Error() }

// Invalid is an error of a request that is not valid: it is answered as a refusal, and a retry has no other result.
func Invalid(err error) error { return &refusal{wire.Invalid, err} }

// ofCampaign is a request about one campaign.
type ofCampaign struct {
	Campaign string `json:"campaign"`
}

// startManaging answers such a request in a goroutine of its own, because it waits for JetStream or for tables.
func (s *Service) startManaging(req *request, data []byte) {
	var about ofCampaign
	if strings.HasPrefix(req.endpoint.takes, "campaign") {
		if json.Unmarshal(data, &about) != nil || !wire.ValidCampaignName(about.Campaign) {
			about.Campaign = "" // refused below
		}
	}
	if req.keyed && !req.allowed(about.Campaign, 0) {
		return
	}
	who := req.who
	if who.Name == "" {
		who = access.Local("") // the credentials of the data directory, of a client that names nobody
	}
	s.background(req, func(ctx context.Context) {
		v, err := req.endpoint.manage.answer(s, ctx, who, data)
		var no *refusal
		switch {
		case errors.Is(err, access.ErrForbidden):
			req.deny(err.Error())
			return
		case errors.As(err, &no):
			req.refuse(&wire.Outcome{Refusal: no.code, Message: no.Error()})
			return
		case err != nil:
			req.fail(err)
			return
		}
		body, err := json.Marshal(map[string]any{"data": v})
		if err != nil {
			req.fail(err)
			return
		}
		if most := s.nc.MaxPayload(); most > 0 && int64(len(body)) > most-headerRoom {
			req.refuse(&wire.Outcome{Refusal: wire.Invalid, Message: fmt.Sprintf("the answer has %d bytes, more than a message may have; give a smaller limit", len(body))})
			return
		}
		req.respond(body, done)
	})
}

// strictly reads a request into v. An unknown field may be a misspelt limit of a key.
func strictly(data []byte, v any) error {
	if len(data) > wire.MaxLine {
		return &refusal{wire.Invalid, fmt.Errorf("the request has %d bytes, at most %d are allowed", len(data), wire.MaxLine)}
	}
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.More() {
		err = errors.New("there is more text after the object")
	}
	if err != nil {
		return &refusal{wire.Invalid, fmt.Errorf("the request is not understood: %w", err)}
	}
	return nil
}

// author is the author of a change of keys, which access.Store checks and records.
func author(p access.Principal) access.Author { return access.Author{Principal: p, Via: "nats"} }

// ofKeys turns an error of the keys that no retry changes into a refusal.
func ofKeys(err error) error {
	for _, kind := range []error{access.ErrInvalid, access.ErrNoSuchKey, access.ErrNameTaken, access.ErrEnded} {
		if errors.Is(err, kind) {
			return &refusal{wire.Invalid, err}
		}
	}
	return err
}

func (s *Service) createKey(ctx context.Context, p access.Principal, n access.New) (any, error) {
	k, secret, err := s.opts.KeyStore.Create(ctx, n, author(p))
	return MadeKey{k, secret}, ofKeys(err)
}

func (s *Service) listKeys(ctx context.Context, _ access.Principal, q struct {
	After string `json:"after"`
	Limit int    `json:"limit"`
}) (any, error) {
	keys, next, err := s.opts.KeyStore.Page(ctx, q.After, q.Limit)
	return KeyPage{Keys: keys, Next: next}, ofKeys(err)
}

func (s *Service) revokeKey(ctx context.Context, p access.Principal, q struct {
	Key string `json:"key"`
}) (any, error) {
	k, err := s.opts.KeyStore.Revoke(ctx, q.Key, author(p))
	return k, ofKeys(err)
}

func (s *Service) rotateKey(ctx context.Context, p access.Principal, q struct {
	Key     string `json:"key"`
	Overlap string `json:"overlap"`
}) (any, error) {
	var overlap time.Duration
	if q.Overlap != "" {
		var err error
		if overlap, err = time.ParseDuration(q.Overlap); err != nil {
			return nil, &refusal{wire.Invalid, fmt.Errorf("overlap: %q is no duration such as 24h", wire.Shorten(q.Overlap, 64))}
		}
	}
	k, secret, err := s.opts.KeyStore.Rotate(ctx, q.Key, overlap, author(p))
	return MadeKey{k, secret}, ofKeys(err)
}

func (s *Service) setSetting(ctx context.Context, p access.Principal, q struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
}) (any, error) {
	if campaign, pauses := settings.Pauses(q.Setting); pauses {
		if err := s.mayPause(ctx, q.Setting, q.Value, campaign); err != nil {
			return nil, err
		}
	}
	c, err := s.opts.Settings.Set(ctx, q.Setting, q.Value, p.Name)
	var invalid *settings.InvalidError
	if errors.As(err, &invalid) {
		return nil, &refusal{wire.Invalid, err}
	}
	if err != nil {
		return nil, err
	}
	return c, s.record(ctx, audit.By(p, audit.Settings, "set", c.Setting+" "+c.Was+" → "+c.Value))
}

// mayPause refuses to pause campaigns that do not exist, so that a mistyped name is an error. A pause can always be ended,
// also while no lane answers.
func (s *Service) mayPause(ctx context.Context, setting, value, campaign string) error {
	if value != "true" {
		state, err := s.opts.Settings.Read(ctx)
		if err != nil {
			return err
		}
		if v, err := state.Value(setting); err == nil && v.Value == "true" {
			return nil
		}
	}
	body, err := s.oneLane(ctx, &query{Query: showCampaign.name, Campaign: campaign})
	if err != nil {
		return fmt.Errorf("the campaign %s could not be looked up, so nothing was set: %w", campaign, err)
	}
	if !bytes.HasPrefix(body, []byte(`{"data"`)) {
		return &refusal{wire.CampaignNotFound, fmt.Errorf("%s: there is no campaign %s, so nothing was set", setting, wire.Shorten(campaign, 64))}
	}
	return nil
}

func (s *Service) listAudit(ctx context.Context, _ access.Principal, q struct {
	Actor string    `json:"actor"`
	Kind  string    `json:"kind"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	Limit int       `json:"limit"`
}) (any, error) {
	f := audit.Filter{Actor: q.Actor, Since: q.Since, Until: q.Until}
	if q.Kind != "" {
		var err error
		if f.Kind, err = audit.ParseKind(q.Kind); err != nil {
			return nil, &refusal{wire.Invalid, err}
		}
	}
	switch {
	case q.Limit == 0:
		q.Limit = defaultAudited
	case q.Limit < 1 || q.Limit > mostAudited:
		return nil, &refusal{wire.Invalid, fmt.Errorf("limit: must be a whole number from 1 to %d", mostAudited)}
	}
	entries, more, err := s.opts.Audit.Read(ctx, f, q.Limit)
	return AuditPage{Entries: append([]audit.Entry{}, entries...), More: more}, err // [] and not null
}

// record adds an entry to the audit stream. An action without its entry is not answered as done.
func (s *Service) record(ctx context.Context, e audit.Entry) error {
	e.Via = "nats"
	return s.opts.Audit.Append(ctx, e)
}
