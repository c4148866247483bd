package service

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// errOtherAccount: a key in a request from an account that keys of its kind do not log in to.
var errOtherAccount = errors.New("this key does not log in to the account that the request is from")

// principal returns who sent a request.
//
// The subject proves the account: imports of other accounts map to subjects of their own (access.GuestSubject). A request there
// is of the key that NATS names in its headers, and the key's rights are checked here once more; without one it is refused.
//
// A request on any other subject comes from the servers' own account. Who is in it holds the credentials of the data directory
// and may do everything. Such a client names its user in topology.HeaderBy, and the name is shown as one that nothing proves.
func (s *Service) principal(m *nats.Msg) (p access.Principal, keyed bool, err error) {
	r, local, err := access.RequesterOf(m)
	switch {
	case err != nil:
		return p, true, err
	case local:
		if name := m.Header.Get(topology.HeaderBy); name != "" {
			return access.Local(name), false, nil
		}
		return p, false, nil
	case s.opts.Keys == nil:
		return p, true, fmt.Errorf("this server has no keys: %w", access.ErrNotReady)
	}
	if p, err = s.opts.Keys.Principal(r.User); err == nil && natsauth.AccountOf(p) != r.Account {
		err = errOtherAccount
	}
	return p, true, err
}

// allowed reports whether the principal may make the request, and answers it if not. campaign is as Principal.May has it, and n
// a coupon that it names so: a producer has to know the code, but to look.
func (r *request) allowed(campaign string, n uint32) bool {
	// Permissions of NATS keep public keys out; here the rule holds whatever these are.
	if r.of != nil && r.at > 0 && r.keyed && r.service.opts.Rate != nil { // the first line was counted with the request
		if wait := r.service.opts.Rate(r.who); wait > 0 {
			r.throttle(wait)
			return false
		}
	}
	r.byN = n != 0
	byCode := !r.byN || r.who.Person() || r.endpoint.query == showCoupon
	if !r.keyed || byCode && !r.who.Public && r.who.May(r.endpoint.operation, campaign) {
		return true
	}
	switch {
	case !byCode:
		r.deny("n: " + wire.CodeOnly)
	case r.who.Public:
		r.deny("a public key claims and redeems over HTTP only")
	default:
		r.deny(r.who.Check(r.endpoint.operation, campaign).Error())
	}
	return false
}

// tooManyWrong is the refusal of a code of a key that has tried too many wrong ones; HTTP has it, too.
const tooManyWrong wire.Refusal = "too_many_wrong_codes"

// wrongCode is in answers to wrong codes. A text in JSON cannot hold it.
var wrongCode = []byte(`"refusal":"` + wire.CodeNotFound + `"`)

// mayTry reports whether the principal may try a code, "" = none, and answers the request if not.
func (r *request) mayTry(code string) bool {
	if code == "" || !r.keyed {
		return true
	}
	tried, wait := r.service.opts.Keys.Wrong.Reserve(r.who, netip.Addr{})
	if wait > 0 {
		r.refuse(&wire.Outcome{ID: r.id, Refusal: tooManyWrong, Message: fmt.Sprintf("too many wrong codes; wait %s", wait)})
		return false
	}
	r.tried = tried
	return true
}

// ended ends the try of a code, once.
func (r *request) ended(wrong bool) {
	if tried := r.tried; tried != nil {
		r.tried = nil
		tried(wrong)
	}
}

// shown is an outcome as the principal may see it. about names the coupon whose code a person sees in it, "" = none. entry is of
// the audit stream, nil = the answer needs none.
func (r *request) shown(line []byte) (_ []byte, about string, entry *audit.Entry, err error) {
	if !r.who.Person() && !r.who.NewOnly {
		return line, "", nil, nil
	}
	out, err := wire.ParseOutcome(line)
	if r.who.NewOnly {
		if err == nil && r.who.Withholds(r.endpoint.command, &out) { // the sender chooses ids here: one proves nothing
			access.Withhold(&out)
			line = out.AppendJSON(nil)
		}
		return line, "", nil, err
	}
	object := out.Campaign
	if out.N != 0 {
		object = audit.Coupon(out.Campaign, out.N, r.byN)
	}
	if r.who.Hide(&out); out.Code != "" && r.who.Codes {
		about = object
	}
	if about != "" && out.Repeat {
		entry = new(audit.By(r.who, audit.LookUp, r.endpoint.operation.String(), about))
	} else if !out.Repeat && r.who.Recorded(r.endpoint.command) {
		entry = new(audit.By(r.who, audit.Commands, r.endpoint.command.String(), object))
	}
	return out.AppendJSON(nil), about, entry, err
}
