package service

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/push"
)

// pushOn is an endpoint for senders with a key. What it does is package push's; who may do it for which name is decided here.
func pushOn(name string) endpoint {
	return endpoint{name: strings.ReplaceAll(name, ".", "-"), subject: "scrip." + name, takes: push.Fields[name], push: name}
}

// errOtherName: a sender's key is for another audience.
var errOtherName = errors.New("the key is for another audience")

// startPush answers a request of a sender in a goroutine of its own, because it waits for JetStream. Clients in the servers'
// account have no use for it, so a request that NATS does not attribute to a key is refused: an answer that is passed on as
// a request is none of a sender.
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
	s.backgroundIn(slots, req, func(ctx context.Context) { s.push(ctx, req, data) })
}

func (s *Service) push(ctx context.Context, req *request, data []byte) {
	js, err := jetstream.New(s.nc)
	if err != nil {
		req.fail(err)
		return
	}
	answer, err := push.NewProxy(js, s.opts.Logger).Do(ctx, req.endpoint.push, data, req.mayPush)
	var invalid *push.InvalidRequestError
	switch {
	case errors.Is(err, errOtherName):
		req.deny(err.Error())
	case errors.As(err, &invalid):
		req.refuse(&wire.Outcome{Refusal: wire.Invalid, Message: err.Error()})
	case err != nil:
		req.fail(err)
	case answer.Header != nil && len(answer.Data) > 0:
		req.respondWith(answer.Header, answer.Data, done)
	case answer.Header != nil: // a foreign message; no answer is empty
		req.respondWith(answer.Header, []byte("\n"), done)
	default:
		req.respond(fmt.Appendf(nil, `{"data":%s}`, answer.Data), done)
	}
}

// mayPush checks the name of a sender's request. Operators may deliver for every audience, as they may do everything.
func (r *request) mayPush(name string) error {
	if own := r.who.Audience(); r.who.Role == access.Sender && own != name {
		return fmt.Errorf("%w: its name is %q, so it delivers for --name %s, and not for %s", errOtherName, r.who.Name, own, name)
	}
	return nil
}
