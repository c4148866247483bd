package service

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/push"
)

// pushOn is an endpoint for senders with a key. What it does is package push's; who may do it for which name is decided here.
func pushOn(name string) endpoint {
	return endpoint{name: strings.ReplaceAll(name, ".", "-"), subject: "scrip." + name, takes: push.Fields[name], push: name}
}

// startPush answers a request of a sender in a goroutine of its own, because it waits for JetStream. A request that NATS attributes
// to no key is refused: clients in the servers' account have no use for it, and an answer of NATS that is passed on as a request
// has no sender.
func (s *Service) startPush(req *request, data []byte) {
	if !req.keyed {
		req.deny("this is for senders with a key; with credentials of servers use JetStream")
		return
	}
	if !req.allowed("", 0) {
		return
	}
	slots := s.pushes
	if req.endpoint.push == push.EndpointNext {
		slots = s.pulls
	}
	s.background(slots, req, func(ctx context.Context) {
		answer, err := s.senders.Do(ctx, req.endpoint.push, data, req.mayPush)
		var invalid *push.InvalidRequestError
		switch {
		case errors.As(err, &invalid):
			req.refuse(&wire.Outcome{Refusal: wire.Invalid, Message: err.Error()})
		case err != nil:
			req.refused(err)
		case answer.Header == nil:
			req.answer(nil, fmt.Appendf(nil, `{"data":%s}`, answer.Data), done)
		case len(answer.Data) == 0: // a foreign message
			req.answer(answer.Header, []byte("\n"), done)
		default:
			req.answer(answer.Header, answer.Data, done)
		}
	})
}

// mayPush checks the name of a sender's request. Operators may deliver for every audience, as they may do everything, if they see
// customers.
func (r *request) mayPush(name string) error {
	if r.who.Role != access.Sender && !r.who.Customers {
		return &ops.Refusal{Code: ops.Forbidden, Message: "reminders name customers, and the key does not see these; use one of role sender"}
	}
	if own := r.who.Audience(); r.who.Role == access.Sender && own != name {
		return &ops.Refusal{Code: ops.Forbidden, Message: fmt.Sprintf("the key is for another audience: its name is %q, so it delivers for --name %s, and not for %s", r.who.Name, own, name)}
	}
	return nil
}
