package lane

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// maxQueries is how many queries wait for the lane's goroutine. More are dropped: their clients retry, and would no longer
// wait by the time the lane answered.
const maxQueries = 64

// request is a query as the micro service sends it to the owner of a lane.
type request struct {
	Query      string `json:"query"`
	ID         string `json:"id"`
	Campaign   string `json:"campaign"`
	Code       string `json:"code"`
	N          uint32 `json:"n"` // instead of Code
	CustomerID string `json:"customer_id"`
	OrderID    string `json:"order_id"`
	Kind       string `json:"kind"`
	Before     string `json:"before"` // a Go duration
	After      string `json:"after"`
	AfterN     uint32 `json:"after_n"`
	Limit      int    `json:"limit"`
	Batch      string `json:"batch"`
	// WaitMS is how long the client waits, in milliseconds. 0 = defaultWait.
	WaitMS int64 `json:"wait_ms"`
}

// receivedQuery is a query and the time of its arrival.
type receivedQuery struct {
	msg *nats.Msg
	at  time.Time
}

// subscribe starts to receive queries.
func (o *owner) subscribe() (*nats.Subscription, error) {
	dropped := o.opt.Metrics.lateQueries.WithLabelValues(o.lane.label)
	return o.opt.JetStream.Conn().Subscribe(topology.LaneQuery(o.opt.Lane), func(msg *nats.Msg) {
		if !topology.MayReply(msg.Reply) {
			if msg.Reply != "" {
				o.opt.Metrics.badQuery.Inc()
			}
			return
		}
		select {
		case o.queries <- receivedQuery{msg, o.opt.Clock.Now()}:
		default:
			dropped.Inc()
		}
	})
}

// late drops a query whose client no longer waits: an answer would only delay the next ones, among them its retry.
func (o *owner) late(query receivedQuery, q request) bool {
	wait := time.Duration(q.WaitMS) * time.Millisecond
	if wait <= 0 || wait > defaultWait {
		wait = defaultWait
	}
	if o.opt.Clock.Now().Sub(query.at) < wait {
		return false
	}
	o.opt.Metrics.lateQueries.WithLabelValues(o.lane.label).Inc()
	return true
}

// query answers from the state, or starts a walk over it.
func (o *owner) query(query receivedQuery) {
	var q request
	if err := json.Unmarshal(query.msg.Data, &q); err != nil {
		o.respond(protocol.Reply{Subject: query.msg.Reply, Payload: refused(wire.Invalid, "", "the query is not valid JSON: "+err.Error())})
		return
	}
	if o.late(query, q) {
		return
	}
	switch q.Query {
	case "campaign.list":
		o.startWalk(query, q, o.list)
	case "customer.show":
		o.startWalk(query, q, o.customer)
	default:
		o.respond(protocol.Reply{Subject: query.msg.Reply, Payload: o.answer(&q)})
	}
}

// respond sends an answer that was read from the state, which may be ahead of the durable log; so it is sent with the step
// it may depend on.
func (o *owner) respond(a protocol.Reply) {
	if !o.term.Attach(a) {
		o.send([]protocol.Reply{a})
	}
}

// answer answers a query about one campaign or coupon.
func (o *owner) answer(q *request) []byte {
	now := wire.At(o.opt.Clock.Now())
	switch q.Query {
	case "campaign.show":
		if view, ok := o.term.State().Campaign(q.Campaign); ok {
			return dataOf(view)
		}
		return refused(wire.CampaignNotFound, q.Campaign, "there is no campaign "+q.Campaign)
	case "codes.allotments":
		if items, next, ok := o.term.State().Allotments(q.Campaign, q.After, q.Batch, q.Limit); ok {
			return dataOf(map[string]any{"items": items, "next": next})
		}
		return refused(wire.CampaignNotFound, q.Campaign, "there is no campaign "+q.Campaign)
	case "coupon.show":
		if view, ok := o.term.State().Coupon(q.Campaign, q.Code, q.N, now); ok {
			if q.OrderID != "" {
				view.OrderStatus = o.term.State().OrderStatus(view.Campaign, view.N, q.OrderID)
			}
			return dataOf(view)
		}
		return refused(wire.CodeNotFound, q.Campaign, "there is no such code")
	case "reminder.show":
		cmd := wire.Command{Type: wire.Remind, Campaign: q.Campaign, CustomerID: q.CustomerID, Kind: q.Kind}
		cmd.Before, _ = time.ParseDuration(q.Before) // the service has checked it
		if view, pending := o.term.State().Reminder(&cmd); pending {
			return dataOf(view)
		}
		return dataOf(nil)
	case "coupon.validate":
		cmd := wire.Command{Type: wire.Redeem, ID: q.ID, Campaign: q.Campaign, Code: q.Code, N: q.N, CustomerID: q.CustomerID, OrderID: q.OrderID}
		out := o.term.State().Validate(&cmd, now)
		return out.AppendJSON(nil)
	}
	return refused(wire.Invalid, "", fmt.Sprintf("query: unknown query %q", q.Query))
}

func dataOf(v any) []byte {
	data, err := json.Marshal(map[string]any{"data": v})
	if err != nil {
		return refused(wire.Invalid, "", "the answer cannot be written: "+err.Error())
	}
	return data
}

func refused(r wire.Refusal, campaign, message string) []byte {
	out := wire.Outcome{Status: wire.StatusRefused, Campaign: campaign, Refusal: r, Message: message}
	return out.AppendJSON(nil)
}
