package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// queryWait is the most one lane may take to answer; it answers between two steps, so a slow one counts as absent.
const queryWait = 2 * time.Second

// queryKind is one kind of query.
type queryKind struct {
	name   string   // the lane's name for it
	takes  []string // fields
	needs  []string // of them, those that are required
	most   int      // of field limit
	answer func(s *Service, ctx context.Context, q *query) ([]byte, error)
}

var (
	validateCoupon = &queryKind{name: "coupon.validate", takes: []string{"code", "order_id", "customer_id", "campaign", "n", "id"},
		needs: []string{"code"}, answer: (*Service).oneLane}
	showCoupon = &queryKind{name: "coupon.show", takes: []string{"code", "campaign", "n", "limit", "before"}, most: MaxShown,
		needs: []string{"code"}, answer: (*Service).coupon}
	showCustomer = &queryKind{name: "customer.show", takes: []string{"customer_id", "limit", "before"}, most: MaxShown,
		needs: []string{"customer_id"}, answer: (*Service).customer}
	showCampaign = &queryKind{name: "campaign.show", takes: []string{"campaign"},
		needs: []string{"campaign"}, answer: (*Service).oneLane}
	listCampaigns = &queryKind{name: "campaign.list", takes: []string{"after", "limit"}, most: maxListed, answer: (*Service).list}
)

// query is a checked query; its JSON is sent to the lane's owner.
type query struct {
	Query      string `json:"query"`
	ID         string `json:"id,omitempty"`
	Campaign   string `json:"campaign,omitempty"`
	Code       string `json:"code,omitempty"`
	N          uint32 `json:"n,omitempty"` // of the coupon, with Campaign and instead of Code
	CustomerID string `json:"customer_id,omitempty"`
	OrderID    string `json:"order_id,omitempty"`
	After      string `json:"after,omitempty"`
	AfterN     uint32 `json:"after_n,omitempty"` // coupon of campaign After
	Limit      int    `json:"limit,omitempty"`
	WaitMS     int64  `json:"wait_ms,omitempty"` // how long this service waits for the answer

	// The fields below are not sent.
	before string // the lane has no history
	mask   bool   // codes in the answer are masked
	about  string // what was looked up, for the audit stream; set by an answer that has codes
}

// maxListed is the most campaigns one answer lists, and the default.
const maxListed = 1000

// startQuery answers a query in a goroutine of its own, because it waits for lanes and tables.
func (s *Service) startQuery(req *request, data []byte) {
	q, err := parseQuery(req.endpoint.query, data)
	if err != nil {
		req.refuse(&wire.Outcome{ID: q.ID, Campaign: q.Campaign, Refusal: wire.Invalid, Message: err.Error()})
		return
	}
	if !req.allowed(q.Campaign, q.N) || !req.mayTry(q.Code) {
		return
	}
	q.mask = req.keyed && !req.who.Codes
	s.background(req, func(ctx context.Context) {
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
			req.respond(body, refused)
		default:
			req.respond(body, done)
		}
	})
}

// recordLookUp records an answer with codes in clear. Programs in the servers' account name nobody and are not recorded: HTTP is
// one, and records its users by itself.
func (s *Service) recordLookUp(ctx context.Context, req *request, q *query) error {
	if q.about == "" || q.mask || req.who.Name == "" {
		return nil
	}
	return s.record(ctx, audit.By(req.who, audit.LookUp, strings.TrimSuffix(q.Query, ".show"), q.about))
}

// shown is a coupon or an entry of a history, as JSON objects: with its code masked if the query's sender sees none.
func (q *query) shown(object json.RawMessage) (json.RawMessage, error) {
	if !q.mask {
		return object, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, fmt.Errorf("a part of the answer is no object: %w", err)
	}
	if fields["code"] == nil {
		return object, nil
	}
	var text string
	if err := json.Unmarshal(fields["code"], &text); err != nil {
		return nil, fmt.Errorf("a code in the answer is no text: %w", err)
	}
	var err error
	if fields["code"], err = json.Marshal(code.Mask(text)); err != nil {
		return nil, fmt.Errorf("encoding the answer: %w", err)
	}
	return json.Marshal(fields)
}

// background runs f, which answers a request, in a goroutine of its own. Its context ends with the request's deadline.
func (s *Service) background(req *request, f func(context.Context)) {
	s.backgroundIn(s.queries, req, f)
}

// backgroundIn is background with a slot of another kind than that of queries.
func (s *Service) backgroundIn(slots chan struct{}, req *request, f func(context.Context)) {
	work, end, err := s.begin(slots)
	if err != nil {
		req.fail(err)
		return
	}
	ctx, cancel := context.WithDeadline(work, req.deadline)
	go func() {
		defer end()
		defer cancel()
		f(ctx)
	}()
}

// begin counts a request in progress and returns the context of its work. The service does not stop before end is called.
func (s *Service) begin(slots chan struct{}) (work context.Context, end func(), err error) {
	select {
	case slots <- struct{}{}:
	default:
		return nil, nil, fmt.Errorf("%w: %d; retry", ErrBusy, cap(slots))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.work == nil {
		<-slots
		return nil, nil, ErrStopping
	}
	s.running.Add(1)
	s.open.Add(1)
	return s.work, func() { s.open.Add(-1); <-slots; s.running.Done() }, nil
}

// Errors of queries that were not begun.
var (
	ErrBusy     = errors.New("this server has as many queries in progress as it can")
	ErrStopping = errors.New("this server is stopping; retry")
)

// parseQuery parses a query strictly: with a misspelt field it would be another query.
func parseQuery(kind *queryKind, data []byte) (*query, error) {
	q := &query{Query: kind.name}
	if len(data) > wire.MaxLine {
		return q, fmt.Errorf("the request has %d bytes, at most %d are allowed", len(data), wire.MaxLine)
	}
	if len(bytes.TrimSpace(data)) == 0 && len(kind.needs) == 0 {
		data = []byte("{}")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil || !utf8.Valid(data) { // package json would read U+FFFD
		return q, errors.New("the request must be one JSON object in UTF-8")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(kind.takes, name) {
			return q, fmt.Errorf("%s: unknown field; this query takes %s", wire.Shorten(name, 64), strings.Join(kind.takes, ", "))
		}
		if err := q.set(kind, name, fields[name]); err != nil {
			return q, fmt.Errorf("%s: %w", name, err)
		}
	}
	needs := kind.needs
	if fields["n"] != nil {
		if needs = []string{"campaign"}; fields["code"] != nil {
			return q, errors.New("code: " + wire.OneName)
		}
	}
	for _, name := range needs {
		if fields[name] == nil {
			return q, fmt.Errorf("%s: missing; this query needs it", name)
		}
	}
	return q, nil
}

func (q *query) set(kind *queryKind, name string, raw json.RawMessage) error {
	if name == "limit" {
		n, err := strconv.Atoi(string(raw))
		if err != nil || n < 1 || n > kind.most {
			return fmt.Errorf("must be a whole number from 1 to %d", kind.most)
		}
		q.Limit = n
		return nil
	}
	if name == "n" {
		n, err := strconv.ParseUint(string(raw), 10, 32)
		if err != nil || n == 0 || n > wire.MaxCodes {
			return fmt.Errorf("must be a whole number from 1 to %d", wire.MaxCodes)
		}
		q.N = uint32(n)
		return nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil || string(raw) == "null" {
		return errors.New("must be a string")
	}
	switch name {
	case "id":
		q.ID = s
		return checkText(s, wire.MaxCommandID)
	case "campaign":
		q.Campaign = s
		return checkName(s)
	case "after":
		q.After = s
		return checkName(s)
	case "before":
		q.before = s
		return checkText(s, maxCursor)
	case "code":
		q.Code = s
		return checkText(s, wire.MaxCodeInput)
	case "customer_id":
		q.CustomerID = s
		return checkText(s, wire.MaxCustomerID)
	case "order_id":
		q.OrderID = s
		return checkText(s, wire.MaxOrderID)
	}
	return nil
}

func checkName(s string) error {
	if !wire.ValidCampaignName(s) {
		return fmt.Errorf("must be 1 to %d of A-Z a-z 0-9 _ -", wire.MaxCampaignName)
	}
	return nil
}

func checkText(s string, most int) error {
	switch {
	case s == "":
		return errors.New("must not be empty")
	case len(s) > most:
		return fmt.Errorf("has %d bytes, at most %d are allowed", len(s), most)
	case !wire.Printable(s):
		return errors.New("must be printable UTF-8 without control characters")
	}
	return nil
}

// maxCursor bounds a cursor: a campaign's name and some numbers.
const maxCursor = 256

// paging removes from a query the fields that are not sent to the lane.
func (q *query) paging() (limit int, before string) {
	if limit = q.Limit; limit == 0 {
		limit = shown
	}
	q.Limit = 0
	return limit, q.before
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
