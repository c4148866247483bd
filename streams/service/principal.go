package service

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// errForwarded: an answer of a server itself, to a request whose reply subject is an endpoint that the sender's account imports.
// Its sender's rights are unknown, and the server's own are not meant.
var errForwarded = errors.New("this is an answer, not a request")

// principal returns who sent a request.
//
// A request from another account has access.HeaderRequestInfo, which NATS itself writes, also over one that the client has
// sent. Its user is a key, whose rights are checked here once more, or a user of the NATS configuration, whose permissions
// are those of that configuration; in account OPS that is a person.
//
// A request without it comes from the servers' own account. Who is in it holds the credentials of the data directory and
// may do everything. Such a client names its user in topology.HeaderBy, and the name is shown as one that nothing proves.
func (s *Service) principal(m *nats.Msg) (p access.Principal, keyed bool, err error) {
	info := m.Header.Get(access.HeaderRequestInfo)
	if info == "" {
		if name := m.Header.Get(topology.HeaderBy); name != "" {
			return access.Local(name), false, nil
		}
		return access.Principal{}, false, nil
	}
	r, err := access.ParseRequester(info)
	switch {
	case err != nil:
		return p, false, err
	case r.Account == access.AccountServers || r.Account == access.AccountEmbedded:
		return p, false, errForwarded
	case !access.ValidID(r.User) && r.Account == access.AccountOps:
		return access.Local(r.User), false, nil
	case !access.ValidID(r.User):
		return access.Principal{}, false, nil
	case s.opts.Keys == nil:
		return p, false, fmt.Errorf("this server has no keys: %w", access.ErrNotReady)
	}
	p, err = s.opts.Keys.Principal(r.User)
	return p, true, err
}

// allowed reports whether a request may do what it asks for, and answers it if not. campaign is as Principal.May has it.
func (r *request) allowed(campaign string) bool {
	if !r.keyed || r.who.May(r.endpoint.operation, campaign) {
		return true
	}
	switch {
	case r.who.Campaigns == nil || !r.who.May(r.endpoint.operation, r.who.Campaigns[0]):
		r.deny(fmt.Sprintf("a key of role %s may not do %s", r.who.Role, r.endpoint.operation))
	case campaign == "":
		r.deny("this key is limited to campaigns; name the campaign")
	default:
		r.deny("this key is limited to other campaigns than " + campaign)
	}
	return false
}

// deny answers a request that its sender may not make: a micro error 403, like a permission of NATS that refuses it.
func (r *request) deny(why string) { r.problem("403", refused, why) }

// problem sends a micro error. Its body is never empty: an empty message is a valid request to several JetStream APIs.
func (r *request) problem(code string, result result, why string) {
	r.service.metrics.observe(r.number, result, r.took())
	if r.reply == "" {
		return
	}
	description := oneLine(why)
	o := wire.Outcome{ID: r.id, Message: description}
	msg := &nats.Msg{
		Subject: r.reply,
		Header:  nats.Header{micro.ErrorCodeHeader: []string{code}, micro.ErrorHeader: []string{description}},
		Data:    o.AppendJSON(nil),
	}
	if err := r.service.nc.PublishMsg(msg); err != nil {
		r.service.lost(r, err)
	}
}
