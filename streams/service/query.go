package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// queryWait is the most one lane may take to answer; it answers between two steps, so a slow one counts as absent.
const queryWait = 2 * time.Second

// queryKind is one kind of query.
type queryKind struct {
	name   string // the lane's name for it
	fields []ops.Field
	answer func(s *Service, ctx context.Context, q *query) ([]byte, error)
}

var (
	validateCoupon = queryOf("coupon.validate", (*Service).oneLane, "code", "code", "order_id", "customer_id", "campaign", "n", "id")
	showCoupon     = queryOf("coupon.show", (*Service).coupon, "code", "code", "campaign", "n", "order_id", "history", "limit", "after")
	showCustomer   = queryOf("customer.show", (*Service).customer, "customer_id", "customer_id", "history", "limit", "after")
	showCampaign   = queryOf("campaign.show", (*Service).oneLane, "campaign", "campaign")
	listCampaigns  = queryOf("campaign.list", (*Service).list, "", "limit", "after")
	showReminder   = queryOf("reminder.show", (*Service).reminder, "campaign customer_id kind before", "campaign", "customer_id", "kind", "before")
	listAllotments = queryOf("codes.allotments", (*Service).allotments, "campaign", "campaign", "limit", "after")
	printCodes     = queryOf("codes.print", (*Service).print, "campaign batch", "campaign", "batch", "from_n")
)

// queryOf returns a kind of query that takes these fields and needs some of them.
func queryOf(name string, answer func(*Service, context.Context, *query) ([]byte, error), needs string, takes ...string) *queryKind {
	kind := &queryKind{name: name, answer: answer}
	all := ops.FieldsOf(reflect.TypeFor[query]())
	for _, field := range takes {
		f := all[slices.IndexFunc(all, func(f ops.Field) bool { return f.Name == field })]
		f.Required = slices.Contains(strings.Fields(needs), field)
		kind.fields = append(kind.fields, f)
	}
	return kind
}

// query is a checked query; its JSON is sent to the lane's owner. The bounds of its fields are those of commands.
type query struct {
	Query      string `json:"query"`
	ID         string `json:"id,omitempty" maxLength:"64"`
	Campaign   string `json:"campaign,omitempty" maxLength:"64"`
	Code       string `json:"code,omitempty" maxLength:"128"`
	N          uint32 `json:"n,omitempty" minimum:"1" maximum:"1000000000"` // of the coupon, with Campaign and instead of Code
	CustomerID string `json:"customer_id,omitempty" maxLength:"128"`
	OrderID    string `json:"order_id,omitempty" maxLength:"128"`
	Kind       string `json:"kind,omitempty" enum:"opens,expires"`
	Before     string `json:"before,omitempty" maxLength:"64"` // a duration
	History    bool   `json:"history,omitempty"`               // what happened, too, which the tables have
	ops.Paging
	AfterN uint32 `json:"after_n,omitempty"` // coupon of campaign After
	WaitMS int64  `json:"wait_ms,omitempty"` // how long this service waits for the answer
	Batch  string `json:"batch,omitempty" maxLength:"64"`
	FromN  uint32 `json:"from_n,omitempty" minimum:"1" maximum:"1000000000"`

	next  func(place string) string // seals the end of a page
	who   access.Principal          // whose turns it takes
	own   []string                  // the answer leaves out other campaigns; nil = none
	mask  bool                      // codes in the answer are masked
	hide  bool                      // customers are, but one that the query names
	about string                    // what was looked up, for the audit stream; set by an answer that has codes
}

// startQuery answers a query by run, which gives it a context: nil = in a goroutine of its own, because it waits for lanes and tables.
func (s *Service) startQuery(req *request, data []byte, run func(func(context.Context))) {
	if run == nil {
		run = func(answer func(context.Context)) { s.background(s.queries, req, answer) }
	}
	q, err := parseQuery(req.endpoint.query, data)
	ends := s.opts.Cursors.Of(q.Query, req.who, q)
	if err == nil {
		q.After, err = ends.Open(q.After)
	}
	if err != nil {
		req.refuse(&wire.Outcome{ID: q.ID, Campaign: q.Campaign, Refusal: wire.Invalid, Message: err.Error()})
		return
	}
	req.id, q.who = q.ID, req.who
	if !req.allowed(q.Campaign, q.N) || !req.mayTry(q.Code) {
		return
	}
	q.next = ends.Seal
	q.own, q.mask, q.hide = req.who.Campaigns, req.keyed && !req.who.Codes, req.keyed && !req.who.Customers
	if q.mask && req.endpoint.operation == access.OpExportCodes {
		req.deny("a key without the right to see codes may not print them")
		return
	}
	run(func(ctx context.Context) {
		body, err := req.endpoint.query.answer(s, ctx, q)
		if err == nil && q.Query == validateCoupon.name {
			body, q.about, _, err = req.shown(body)
		}
		if err == nil {
			err = s.recordLookUp(ctx, req, q)
		}
		switch {
		case err != nil:
			req.fail(err)
		case bytes.Contains(body, []byte(`"status":"refused"`)) && !bytes.HasPrefix(body, []byte(`{"data"`)):
			req.answer(nil, body, refused)
		default:
			req.answer(nil, body, done)
		}
	})
}

// recordLookUp records an answer with codes or customers in clear. Programs in the servers' account name no user and are not recorded: HTTP
// is one, and records its users by itself.
func (s *Service) recordLookUp(ctx context.Context, req *request, q *query) error {
	if q.about == "" || q.mask && q.hide || req.who.Name == "" {
		return nil
	}
	kind := audit.LookUp
	if req.endpoint.operation == access.OpExportCodes {
		kind = audit.Export
	}
	return s.record(ctx, audit.By(req.who, kind, strings.TrimSuffix(q.Query, ".show"), q.about))
}

// shown is a coupon or an entry of a history, as JSON objects, with what the query's sender does not see masked.
func (s *Service) shown(q *query, object json.RawMessage) (json.RawMessage, error) {
	if !q.mask && !q.hide {
		return object, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, fmt.Errorf("a part of the answer is no object: %w", err)
	}
	replace := func(field string, mask func(string) string) error {
		var text string
		if fields[field] == nil {
			return nil
		}
		if err := json.Unmarshal(fields[field], &text); err != nil {
			return fmt.Errorf("%s in the answer is no text: %w", field, err)
		}
		var err error
		fields[field], err = json.Marshal(mask(text))
		return err
	}
	if q.mask {
		if err := replace("code", code.Mask); err != nil {
			return nil, err
		}
	}
	if q.hide {
		err := replace("customer_id", func(id string) string { return s.opts.Ops.ShownCustomer(access.Principal{}, id, q.CustomerID) })
		if err != nil {
			return nil, err
		}
	}
	return json.Marshal(fields)
}

// background runs f, which answers a request, in a goroutine of its own, if there is a slot. Its context ends with the request's
// deadline, and the service does not stop before it has returned.
func (s *Service) background(slots chan struct{}, req *request, f func(context.Context)) {
	select {
	case slots <- struct{}{}:
	default:
		req.fail(fmt.Errorf("this server has as many queries in progress as it can: %d; retry", cap(slots)))
		return
	}
	s.mu.Lock()
	work := s.work
	if work != nil {
		s.running.Add(1)
		s.open.Add(1)
	}
	s.mu.Unlock()
	if work == nil {
		<-slots
		req.fail(errors.New("this server is stopping; retry"))
		return
	}
	go func() {
		defer func() { s.open.Add(-1); <-slots; s.running.Done() }()
		ctx, cancel := context.WithDeadline(work, req.deadline)
		defer cancel()
		f(ctx)
	}()
}

// parseQuery parses a query strictly: with a misspelt field it would be another query.
func parseQuery(kind *queryKind, data []byte) (*query, error) {
	q := &query{Query: kind.name}
	if len(data) > wire.MaxLine {
		return q, fmt.Errorf("the request has %d bytes, at most %d are allowed", len(data), wire.MaxLine)
	}
	given, err := ops.ParseFields(data)
	if err != nil {
		return q, err
	}
	known := kind.fields
	if given["n"] != nil { // it names a coupon with the campaign, instead of the code
		known = slices.Clone(known)
		for i := range known {
			known[i].Required = known[i].Name == "campaign"
		}
	}
	if err := given.Read(q, known); err != nil {
		return q, err
	}
	switch {
	case q.Campaign != "" && !wire.ValidCampaignName(q.Campaign):
		return q, fmt.Errorf("campaign: must be 1 to %d of A-Z a-z 0-9 _ -", wire.MaxCampaignName)
	case code.Masked(q.Code):
		return q, errors.New("code: " + wire.MaskedCode)
	case q.N != 0 && q.Code != "":
		return q, errors.New("code: " + wire.OneName)
	case kind == showCoupon && q.After != "" && !q.History:
		return q, ops.NeedsHistory
	}
	if before, err := time.ParseDuration(q.Before); q.Before != "" && (err != nil || before < 0 || before > wire.MaxBefore) {
		return q, fmt.Errorf("before: must be a duration from 0s to %s", wire.MaxBefore)
	}
	return q, nil
}

// includes reports whether the answer may have what is of a campaign.
func (q *query) includes(campaign string) bool {
	return q.own == nil || slices.Contains(q.own, campaign)
}

// included are the items that the answer may have.
func (q *query) included(all []item) []item {
	return slices.DeleteFunc(slices.Clone(all), func(i item) bool { return !q.includes(i.campaign) })
}

// paging takes the page out of a query: the lane has no history.
func (q *query) paging() (p ops.Paging) {
	p, q.Paging = q.Paging, ops.Paging{}
	return p
}

// oneLane queries the lane of the query's campaign or code and returns its answer.
func (s *Service) oneLane(ctx context.Context, q *query) ([]byte, error) {
	lane, ok := s.lanes.Of(q.Campaign, q.Code)
	if !ok {
		out := command.NoLane(q.ID)
		return out.AppendJSON(nil), nil
	}
	return s.queryLane(ctx, lane, q)
}

// queryLane queries the owner of one lane.
func (s *Service) queryLane(ctx context.Context, lane int, q *query) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	// A lane drops a query that is older than this. Clocks of machines differ, so it is a duration and not an instant.
	mine := *q
	mine.History = false // the lane has none
	if until, ok := ctx.Deadline(); ok {
		mine.WaitMS = max(time.Until(until).Milliseconds(), 1)
	}
	body, err := json.Marshal(&mine)
	if err != nil {
		return nil, fmt.Errorf("encoding the query: %w", err)
	}
	reply, err := s.nc.RequestWithContext(ctx, topology.LaneQuery(lane), body)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("lane %d has no owner at the moment; retry", lane)
	case err != nil:
		return nil, fmt.Errorf("lane %d did not answer: %w; retry", lane, err)
	}
	return reply.Data, nil
}
