package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/share"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// endpoint is one subject of the service.
type endpoint struct {
	name    string // of the endpoint in micro's statistics and in metrics
	subject string
	takes   string // for readers of the service's description

	operation access.Operation

	command wire.CommandType // type of its requests; NoCommand = none
	named   bool             // the subject's last token is the campaign
	query   *queryKind
	action  *ops.Action
	push    string // the endpoint of package push; "" = none
	busy    bool   // many requests arrive at once, or large ones; see pendingLimits
}

// endpoints are those of the table of commands and the queries.
var endpoints = func() (all []endpoint) {
	for c := range wire.Commands() {
		if c.Spec().Endpoint != "" {
			all = append(all, endpointOf(c))
		}
	}
	all = append(all,
		queryOn("coupon.validate", validateCoupon),
		queryOn("coupon.show", showCoupon),
		queryOn("customer.show", showCustomer),
		queryOn("campaign.show", showCampaign),
		queryOn("campaign.list", listCampaigns),
		queryOn("reminder.show", showReminder),
		queryOn("codes.allotments", listAllotments),
		queryOn("codes.print", printCodes),
	)
	for i := range ops.Actions {
		all = append(all, actionOn(&ops.Actions[i]))
	}
	for _, name := range []string{push.EndpointOpen, push.EndpointNext, push.EndpointAck, push.EndpointStore} {
		all = append(all, pushOn(name))
	}
	for i := range all {
		all[i].operation = access.OperationOn(strings.TrimPrefix(all[i].subject, "scrip."))
	}
	return all
}()

func actionOn(a *ops.Action) endpoint {
	return endpoint{name: strings.ReplaceAll(a.Name, ".", "-"), subject: "scrip." + a.Name, takes: a.Takes(), action: a}
}

func endpointOf(t wire.CommandType) endpoint {
	spec := t.Spec()
	return endpoint{
		name: strings.ReplaceAll(strings.TrimSuffix(spec.Endpoint, ".*"), ".", "-"), subject: "scrip." + spec.Endpoint, takes: spec.Takes(),
		command: t, named: spec.NamesCampaign(), busy: spec.Busy,
	}
}

func queryOn(subject string, q *queryKind) endpoint {
	return endpoint{
		name: strings.ReplaceAll(subject, ".", "-"), subject: "scrip." + subject, takes: ops.Names(q.fields), query: q,
		busy: q == validateCoupon,
	}
}

// several reports whether a request may have several lines.
func (e *endpoint) several() bool {
	return e.action == nil && e.push == "" && (e.query == nil || e.query == validateCoupon)
}

// handle handles a request on endpoint number of endpoints. It runs on the endpoint's goroutine: it must not wait.
//
// A request whose reply subject is no inbox is dropped before anything of it is parsed or sent: an answer is published with
// this server's permissions, and a command whose outcome cannot be delivered must have no effect. A request without a
// reply subject is executed; its sender does not want the outcome.
func (s *Service) handle(number int, m *nats.Msg) {
	if m.Reply != "" && !topology.MayReply(m.Reply) {
		s.metrics.refusedRequests.Inc()
		return
	}
	e := &endpoints[number]
	req := &request{service: s, endpoint: e, number: number, reply: m.Reply, start: time.Now()}
	var err error
	switch req.who, req.keyed, err = s.principal(m); {
	case errors.Is(err, access.ErrNotReady):
		req.fail(err)
		return
	case err != nil:
		req.deny(err.Error())
		return
	}
	if req.keyed && s.opts.Rate != nil {
		if wait := s.opts.Rate(req.who); wait > 0 {
			req.throttle(wait)
			return
		}
	}
	timeout, problem := timeoutOf(m.Header.Get(HeaderTimeout), s.opts.Timeout)
	if problem != nil {
		req.refuse(&wire.Outcome{Refusal: wire.Invalid, Message: problem.Error()})
		return
	}
	req.deadline = req.start.Add(timeout)
	switch {
	case e.query != nil && !e.several():
		s.startQuery(req, m.Data, nil)
		return
	case e.action != nil:
		s.startAction(req, m.Data)
		return
	case e.push != "":
		s.startPush(req, m.Data)
		return
	}
	campaign := ""
	if e.named {
		campaign = m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	}
	switch all := several(m.Data); {
	case len(all) > 1:
		s.startLines(req, campaign, all, len(m.Data))
	case e.query != nil:
		s.startQuery(req, m.Data, nil)
	default:
		s.command(req, campaign, m.Data)
	}
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
	reply    string // passed natsx.May; empty: no reply is wanted
	start    time.Time
	deadline time.Time
	who      access.Principal // the zero value = a client in the servers' account that names no user
	keyed    bool             // who has a key, whose rights are checked
	byN      bool             // it names a coupon by campaign and n
	tried    func(wrong bool) // ends the try of a code; nil = it has none
	of       *lines           // it is a line of that request, at at; nil = it has a reply of its own
	at       int
}

// answer sends a reply; header nil = an ordinary one. No body is empty: an empty message is a valid request to several JetStream APIs.
func (r *request) answer(header nats.Header, body []byte, result result) {
	r.ended(bytes.Contains(body, wrongCode))
	r.service.metrics.observe(r.number, result, time.Since(r.start))
	if r.of != nil {
		r.of.put(r, header, body)
		return
	}
	r.send(header, body)
}

func (r *request) send(header nats.Header, body []byte) {
	if r.reply == "" {
		return
	}
	if err := r.service.nc.PublishMsg(&nats.Msg{Subject: r.reply, Header: header, Data: body}); err != nil { // the client retries
		r.service.opts.Logger.Debug("a reply could not be sent", "endpoint", r.endpoint.name, "id", r.id, "err", err)
	}
}

// refuse answers a request that goes no further.
func (r *request) refuse(out *wire.Outcome) {
	out.Status = wire.StatusRefused
	r.answer(nil, out.AppendJSON(nil), refused)
}

// fail sends a micro error 503: an unknown outcome, or a query that could not be answered. A sender that has used its share is refused:
// nothing was done.
func (r *request) fail(why error) {
	if usedUp := (*share.UsedUp)(nil); errors.As(why, &usedUp) {
		r.refuse(&wire.Outcome{ID: r.id, Refusal: ops.Overloaded, Message: why.Error()})
		return
	}
	r.problem("503", failed, why.Error(), nats.Header{})
}

// deny answers a request that its sender may not make: a micro error 403, like a permission of NATS that refuses it.
func (r *request) deny(why string) { r.problem("403", refused, why, nats.Header{}) }

// throttle answers a request of a key that has used its rate: a micro error 429, without effect, with the seconds to wait.
func (r *request) throttle(wait time.Duration) {
	seconds := strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10)
	why := fmt.Sprintf("this key may make %d requests a second; send fewer, or use a key with a higher rate", r.who.Rate)
	r.problem("429", refused, why, nats.Header{"Retry-After": []string{seconds}})
}

// problem sends a micro error, with further headers.
func (r *request) problem(code string, result result, why string, header nats.Header) {
	description := wire.OneLine(why)
	header[micro.ErrorCodeHeader], header[micro.ErrorHeader] = []string{code}, []string{description}
	o := wire.Outcome{ID: r.id, Message: description}
	r.answer(header, o.AppendJSON(nil), result)
}

// command parses a request and sends its line to the lane. An invalid request is answered at once: a refusal has no effect
// and needs no record in the log.
func (s *Service) command(req *request, campaign string, data []byte) {
	var cmd wire.Command
	def := wire.Defaults{Type: req.endpoint.command, Campaign: campaign, NoID: true}
	if req.endpoint.named && !wire.ValidCampaignName(campaign) {
		req.refuse(&wire.Outcome{Refusal: wire.Invalid,
			Message: fmt.Sprintf("campaign: the subject's last token must be 1 to %d of A-Z a-z 0-9 _ -", wire.MaxCampaignName)})
		return
	}
	if err := wire.ParseCommand(data, def, &cmd); err != nil {
		req.refuse(&wire.Outcome{ID: cmd.ID, Campaign: cmd.Campaign, Refusal: wire.Invalid, Message: err.Error()})
		return
	}
	command.EnsureID(&cmd)
	req.id = cmd.ID
	if !req.allowed(cmd.Campaign, cmd.N) || !req.mayTry(cmd.Code) {
		return
	}
	if req.who.Recorded(cmd.Type) {
		if err := s.opts.Audit.Room(req.who.ID, 0); err != nil {
			req.fail(err)
			return
		}
	}
	s.open.Add(1)
	call := command.Call{By: req.who.By(), Deadline: req.deadline, NoWait: true, To: req}
	if _, err := s.lanes.Send(context.Background(), &cmd, call); err != nil {
		req.Answer(nil, err)
	}
}

// Answer is called with the outcome line of the request's command.
func (r *request) Answer(line []byte, err error) {
	defer r.service.open.Add(-1)
	switch {
	case err != nil:
		r.fail(err)
	case bytes.Contains(line, []byte(`"status":"refused"`)):
		r.answer(nil, line, refused)
	default:
		r.done(line)
	}
}

// done answers with the outcome of a command that was carried out. The event of a change names the person who sent it; a repeat
// has none, so a code that a person sees in it is recorded first.
func (r *request) done(line []byte) {
	line, _, entry, err := r.shown(line)
	switch {
	case err != nil:
		r.fail(err)
	case entry == nil:
		r.answer(nil, line, done)
	default:
		r.service.background(r.service.queries, r, func(ctx context.Context) {
			if err := r.service.record(ctx, *entry); err != nil {
				r.fail(err)
				return
			}
			r.answer(nil, line, done)
		})
	}
}
