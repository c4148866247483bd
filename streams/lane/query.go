package lane

import (
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
	"github.com/seed-4a2410e3/scrip/streams/replyto"
)

// request is a query as the micro service sends it to the owner of a lane.
type request struct {
	Query      string `json:"query"`
	ID         string `json:"id"`
	Campaign   string `json:"campaign"`
	Code       string `json:"code"`
	CustomerID string `json:"customer_id"`
	OrderID    string `json:"order_id"`
	After      string `json:"after"`
	AfterN     uint32 `json:"after_n"`
	Limit      int    `json:"limit"`
}

// maxListed bounds what one query answers, so that the reply stays a message.
const maxListed = 1000

// query answers from the state, which may be ahead of what is durable; so the answer leaves with the step it could have
// seen, like any other.
func (o *owner) query(msg *nats.Msg) {
	if !replyto.May(msg.Reply) {
		if msg.Reply != "" {
			o.opt.Metrics.badQuery.Inc()
		}
		return
	}
	a := protocol.Answer{Subject: msg.Reply, Payload: o.answerQuery(msg.Data)}
	if !o.Attach(a) {
		o.send([]protocol.Answer{a})
	}
}

func (o *owner) answerQuery(data []byte) []byte {
	var q request
	if err := json.Unmarshal(data, &q); err != nil {
		return refused(domain.Invalid, "", "the query is not valid JSON: "+err.Error())
	}
	if q.Limit <= 0 || q.Limit > maxListed {
		q.Limit = maxListed
	}
	now := domain.At(o.opt.Now())
	switch q.Query {
	case "campaign.show":
		if view, ok := o.State().Campaign(q.Campaign); ok {
			return dataOf(view)
		}
		return refused(domain.CampaignNotFound, q.Campaign, "there is no campaign "+q.Campaign)
	case "campaign.list":
		return dataOf(o.State().List(q.After, q.Limit))
	case "coupon.show":
		if view, ok := o.State().Coupon(q.Campaign, q.Code, now); ok {
			return dataOf(view)
		}
		return refused(domain.CodeNotFound, q.Campaign, "there is no such code")
	case "coupon.validate":
		cmd := domain.Command{Type: domain.Redeem, ID: q.ID, Campaign: q.Campaign, Code: q.Code, CustomerID: q.CustomerID, OrderID: q.OrderID}
		out := o.State().Validate(&cmd, now)
		return out.AppendJSON(nil)
	case "customer.show":
		return dataOf(o.State().CustomerAfter(q.CustomerID, now, q.After, q.AfterN, q.Limit))
	}
	return refused(domain.Invalid, "", fmt.Sprintf("query: unknown query %q", q.Query))
}

func dataOf(v any) []byte {
	data, err := json.Marshal(map[string]any{"data": v})
	if err != nil {
		return refused(domain.Invalid, "", "the answer cannot be written: "+err.Error())
	}
	return data
}

func refused(r domain.Refusal, campaign, message string) []byte {
	out := domain.Outcome{Status: domain.StatusRefused, Campaign: campaign, Refusal: r, Message: message}
	return out.AppendJSON(nil)
}
