package service

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/replyto"
)

// endpoint is one subject of the service.
type endpoint struct {
	name    string // of the endpoint in micro's statistics and in metrics
	subject string
	takes   string // for readers of the service's description

	command wire.CommandType // type of its requests; NoCommand = a query
	named   bool             // the subject's last token is the campaign
	query   *queryKind
	busy    bool // many requests arrive at once, or large ones; see pendingLimits
}

// endpoints are those of the table of commands and the queries.
var endpoints = func() (all []endpoint) {
	for c := range wire.Commands() {
		if c.Spec().Endpoint != "" {
			all = append(all, command(c))
		}
	}
	return append(all,
		queryOn("coupon.validate", validateCoupon),
		queryOn("coupon.show", showCoupon),
		queryOn("customer.show", showCustomer),
		queryOn("campaign.show", showCampaign),
		queryOn("campaign.list", listCampaigns),
	)
}()

func command(t wire.CommandType) endpoint {
	spec := t.Spec()
	return endpoint{
		name: strings.ReplaceAll(strings.TrimSuffix(spec.Endpoint, ".*"), ".", "-"), subject: "scrip." + spec.Endpoint, takes: spec.Takes(),
		command: t, named: spec.NamesCampaign(), busy: spec.Busy,
	}
}

func queryOn(subject string, q *queryKind) endpoint {
	return endpoint{
		name: strings.ReplaceAll(subject, ".", "-"), subject: "scrip." + subject, takes: strings.Join(q.takes, ", "), query: q,
		busy: q == validateCoupon,
	}
}

// handle handles a request on endpoint number of endpoints. It runs on the endpoint's goroutine: it must not wait.
//
// A request whose reply subject is no inbox is dropped before anything of it is parsed or sent: an answer is published with
// this server's permissions, and a command whose outcome cannot be delivered must have no effect. A request without a
// reply subject is executed; its sender does not want the outcome.
func (s *Service) handle(number int, m *nats.Msg) {
	if m.Reply != "" && !replyto.May(m.Reply) {
		s.metrics.refusedRequests.Inc()
		return
	}
	e := &endpoints[number]
	req := &request{service: s, endpoint: e, number: number, reply: m.Reply, start: time.Now()}
	timeout, problem := timeoutOf(m.Header.Get(HeaderTimeout), s.opts.Timeout)
	if problem != nil {
		req.refuse(&wire.Outcome{Refusal: wire.Invalid, Message: problem.Error()})
		return
	}
	req.deadline = req.start.Add(timeout)
	if e.query != nil {
		s.startQuery(req, m.Data)
		return
	}
	campaign := ""
	if e.named {
		campaign = m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	}
	s.command(req, campaign, m.Data)
}

// timeoutOf reads HeaderTimeout.
func timeoutOf(header string, otherwise time.Duration) (time.Duration, error) {
	if header == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(header)
	if err != nil || d <= 0 || d > MaxTimeout {
		return 0, &wire.InvalidError{Field: HeaderTimeout, Message: "must be a duration above 0 and up to " + MaxTimeout.String() + ", such as 3s"}
	}
	return d, nil
}

// request is one request from its arrival to its reply.
type request struct {
	service  *Service
	endpoint *endpoint
	number   int    // of the endpoint
	id       string // of its command
	reply    string // passed replyto.May; empty: no reply is wanted
	start    time.Time
	deadline time.Time
}

// respond sends an ordinary reply.
func (r *request) respond(body []byte, result result) {
	r.service.metrics.observe(r.number, result, time.Since(r.start))
	if r.reply == "" {
		return
	}
	if err := r.service.nc.Publish(r.reply, body); err != nil {
		r.service.lost(r, err)
	}
}

// refuse answers a request that goes no further.
func (r *request) refuse(out *wire.Outcome) {
	out.Status = wire.StatusRefused
	r.respond(out.AppendJSON(nil), refused)
}

// fail sends a micro error 503: an unknown outcome, or a query that could not be answered. Its body is never empty: an
// empty message is a valid request to several JetStream APIs.
func (r *request) fail(why error) {
	r.service.metrics.observe(r.number, failed, time.Since(r.start))
	if r.reply == "" {
		return
	}
	description := oneLine(why.Error())
	o := wire.Outcome{ID: r.id, Message: description}
	msg := &nats.Msg{
		Subject: r.reply,
		Header: nats.Header{
			micro.ErrorCodeHeader: []string{"503"},
			micro.ErrorHeader:     []string{description},
		},
		Data: o.AppendJSON(nil),
	}
	if err := r.service.nc.PublishMsg(msg); err != nil {
		r.service.lost(r, err)
	}
}

// lost logs a reply that could not be sent. The client retries.
func (s *Service) lost(r *request, err error) {
	s.opts.Logger.Debug("a reply could not be sent", "endpoint", r.endpoint.name, "id", r.id, "err", err)
}

// oneLine makes a text valid in a header.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return ' '
		}
		return r
	}, s)
}
