package service

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// allotmentsFound is an answer of a lane.
type allotmentsFound struct {
	Data ops.Page[domain.AllotmentView]
}

// allotments answers codes.allotments.
func (s *Service) allotments(ctx context.Context, q *query) ([]byte, error) {
	var found allotmentsFound
	if refused, err := s.read(ctx, q, &found); refused != nil || err != nil {
		return refused, err
	}
	found.Data.Next = q.next(found.Data.Next)
	return encode(found.Data)
}

// read reads a lane's answer to a query, or returns its refusal.
func (s *Service) read(ctx context.Context, q *query, into any) (refused []byte, err error) {
	reply, err := s.oneLane(ctx, q)
	if err != nil || !bytes.HasPrefix(reply, []byte(`{"data"`)) {
		return reply, err
	}
	if err := json.Unmarshal(reply, into); err != nil {
		return nil, fmt.Errorf("the lane's answer has another form than expected: %w", err)
	}
	return nil, nil
}

// printedAtOnce is the most codes of an answer: with the longest prefix they are 680 KB.
const printedAtOnce = 20_000

// printed is a part of the codes of an allotment.
type printed struct {
	Campaign string   `json:"campaign"`
	Batch    string   `json:"batch"`
	FromN    uint32   `json:"from_n"`
	Codes    []string `json:"codes"`            // of FromN and the coupons after it
	NextN    uint32   `json:"next_n,omitempty"` // from_n of the next part; 0 = this is the last one
}

// print answers codes.print with codes made from the code key: no lane has them.
func (s *Service) print(ctx context.Context, q *query) ([]byte, error) {
	refuse := func(r wire.Refusal, message string) ([]byte, error) {
		out := wire.Outcome{Status: wire.StatusRefused, Campaign: q.Campaign, Refusal: r, Message: message}
		return out.AppendJSON(nil), nil
	}
	var of struct{ Data domain.CampaignView }
	var found allotmentsFound
	refused, err := s.read(ctx, &query{Query: showCampaign.name, Campaign: q.Campaign}, &of)
	if refused == nil && err == nil {
		refused, err = s.read(ctx, &query{Query: listAllotments.name, Campaign: q.Campaign, Batch: q.Batch, Paging: ops.Paging{Limit: 1}}, &found)
	}
	if refused != nil || err != nil {
		return refused, err
	}
	if len(found.Data.Items) == 0 {
		return refuse(ops.NotFound, "the campaign has no allotment "+q.Batch)
	}
	a := found.Data.Items[0]
	from := cmp.Or(q.FromN, a.FromN)
	if from < a.FromN || from > a.ThroughN+1 { // the number after the last one goes on with a whole file: there is nothing more
		return refuse(wire.Invalid, fmt.Sprintf("from_n: must be %d to %d, the coupons of batch %s", a.FromN, a.ThroughN, a.Batch))
	}
	out := printed{Campaign: q.Campaign, Batch: q.Batch, FromN: from, Codes: []string{}}
	most := min(printedAtOnce, s.room()/(code.MaxCodeLen+3))
	var buf [code.MaxCodeLen]byte
	for n := from; n <= a.ThroughN && len(out.Codes) < most; n++ {
		out.Codes = append(out.Codes, string(s.opts.Batch.Codec.AppendCode(buf[:0], of.Data.Prefix, of.Data.Number, n)))
	}
	if next := from + uint32(len(out.Codes)); next <= a.ThroughN {
		out.NextN = next
	}
	q.about = fmt.Sprintf("%s %s from %d", q.Campaign, q.Batch, from)
	return encode(out)
}
