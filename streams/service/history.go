package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// History reads from the tables what the lanes' state does not have: what happened to a coupon or a customer, newest first,
// up to limit entries before a cursor that they returned ("" = the newest). Both methods return an error while the tables are
// unreachable. They are called by several goroutines at once.
type History interface {
	Coupon(ctx context.Context, campaign string, n uint32, limit int, before string) (HistoryPage, error)
	Customer(ctx context.Context, customerID string, limit int, before string) (HistoryPage, error)
}

// HistoryPage is a part of a history, newest first.
type HistoryPage struct {
	Entries []HistoryEntry
	// More is true if older entries follow.
	More bool
	// Note is what the entries lack, "" if nothing.
	Note string
}

// HistoryEntry is one entry of a history.
type HistoryEntry struct {
	Campaign string
	JSON     json.RawMessage // nil = the answer leaves it out
	// Before is the cursor of the entries before this one.
	Before string
}

// historyWait bounds the tables' answer: the lane has answered already. It is within the 3 s after which the SDK retries.
const historyWait = 2 * time.Second

// coupon answers coupon.show: the lane's state and, if requested, a page of the tables' history.
func (s *Service) coupon(ctx context.Context, q *query) ([]byte, error) {
	at := q.paging()
	reply, err := s.oneLane(ctx, q)
	if err != nil {
		return nil, err
	}
	var body struct{ Data json.RawMessage }
	if err := json.Unmarshal(reply, &body); err != nil {
		return nil, fmt.Errorf("the lane's answer is not JSON: %w", err)
	}
	if body.Data == nil {
		return reply, nil // a refusal
	}
	var view domain.CouponView
	if err := json.Unmarshal(body.Data, &view); err != nil {
		return nil, fmt.Errorf("the lane's answer is not a coupon: %w", err)
	}
	coupon, err := s.shown(q, body.Data)
	if err != nil {
		return nil, err
	}
	q.about = audit.Coupon(view.Campaign, view.N, q.N != 0)
	if !q.History {
		return encode(coupon)
	}
	var rest added
	page, err := s.history(ctx, q, func(ctx context.Context, h History) (HistoryPage, error) {
		return h.Coupon(ctx, view.Campaign, view.N, at.Limit, at.After)
	})
	if older, more := rest.addHistory(page, err, s.room()-len(coupon), at.After); more {
		rest.Next = q.next(older)
	}
	more, err := marshal(rest)
	if err != nil {
		return nil, err
	}
	return encode(json.RawMessage(string(coupon[:len(coupon)-1]) + "," + string(more[1:]))) // one object
}

// customer answers customer.show: a page of the customer's coupons from all lanes and, if requested, one of the tables' history.
func (s *Service) customer(ctx context.Context, q *query) ([]byte, error) {
	var from shownPlace
	at := q.paging()
	if at.After != "" {
		if err := json.Unmarshal([]byte(at.After), &from); err != nil {
			return nil, fmt.Errorf("the place in a list of coupons is no JSON: %w", err)
		}
	}
	out := shownCustomer{CustomerID: q.CustomerID, Items: json.RawMessage("[]")}
	if q.History {
		out.History = []json.RawMessage{}
	}
	next := from
	if !from.Listed {
		q.Limit, q.After, q.AfterN = at.Limit+1, from.Campaign, from.N
		all, more, err := s.queryAll(ctx, q)
		if err != nil {
			return nil, err
		}
		more = more || len(all) > at.Limit
		all = all[:min(at.Limit, len(all))]
		own := q.included(all)
		for i := range own {
			if own[i].raw, err = s.shown(q, own[i].raw); err != nil {
				return nil, err
			}
		}
		room := s.room()
		if q.History {
			room /= 2
		}
		data, kept := join(own, room)
		out.Items = data
		if next.Listed = !more && kept == len(own); !next.Listed {
			end := all[len(all)-1]
			if kept < len(own) {
				end = own[kept-1]
			}
			var last struct {
				Campaign string
				N        uint32
			}
			if err := json.Unmarshal(end.raw, &last); err != nil || last.N == 0 {
				return nil, fmt.Errorf("a lane's answer has an item that is no coupon: %.200s", end.raw)
			}
			next.Campaign, next.N = last.Campaign, last.N
		}
	}
	if q.History && !from.HistoryEnd {
		page, err := s.history(ctx, q, func(ctx context.Context, h History) (HistoryPage, error) {
			return h.Customer(ctx, q.CustomerID, at.Limit, from.History)
		})
		// While the tables are unreachable the next page starts at the same position of the history.
		if older, more := out.addHistory(page, err, s.room()-len(out.Items), from.History); more {
			next.History = older
		} else {
			next.HistoryEnd = err == nil
		}
	}
	q.about = q.CustomerID
	if !next.Listed || out.History != nil && !next.HistoryEnd {
		place, err := marshal(next)
		if err != nil {
			return nil, err
		}
		out.Next = q.next(string(place))
	}
	return encode(out)
}

// history reads from the tables.
func (s *Service) history(ctx context.Context, q *query, get func(context.Context, History) (HistoryPage, error)) (HistoryPage, error) {
	if s.opts.History == nil {
		return HistoryPage{}, errors.New("this server has no read tables")
	}
	ctx, cancel := context.WithTimeout(ctx, historyWait)
	defer cancel()
	page, err := get(ctx, s.opts.History)
	if err != nil {
		return HistoryPage{}, fmt.Errorf("the read tables do not answer: %w", err)
	}
	for i := range page.Entries {
		if e := &page.Entries[i]; !q.includes(e.Campaign) {
			e.JSON = nil
		} else if e.JSON, err = s.shown(q, e.JSON); err != nil {
			return HistoryPage{}, err
		}
	}
	return page, nil
}

// reminder answers reminder.show: a pending one as its lane has it, any other from the tables, which may lag a little.
func (s *Service) reminder(ctx context.Context, q *query) ([]byte, error) {
	reply, err := s.oneLane(ctx, q)
	if err != nil || string(reply) != `{"data":null}` {
		return reply, err
	}
	one := ops.ListReminders{Campaign: q.Campaign, CustomerID: q.CustomerID, Kind: q.Kind, Paging: ops.Paging{Limit: 1}}
	one.Before, _ = time.ParseDuration(q.Before) // parseQuery has checked it
	who := ops.Caller{Principal: q.who}
	found, err := s.opts.Ops.ListReminders(ctx, who, one)         // whose customer is named
	for err == nil && len(found.Items) == 0 && found.Next != "" { // a customer with many has them in parts
		one.After = found.Next
		found, err = s.opts.Ops.ListReminders(ctx, who, one)
	}
	switch {
	case err != nil:
		return nil, err
	case len(found.Items) == 0:
		out := wire.Outcome{Status: wire.StatusRefused, Campaign: q.Campaign, Refusal: ops.NotFound, Message: "there is no such reminder"}
		return out.AppendJSON(nil), nil
	}
	return encode(found.Items[0])
}

// shownCustomer is the answer of customer.show.
type shownCustomer struct {
	CustomerID string          `json:"customer_id"`
	Items      json.RawMessage `json:"items"`
	added
}

// added is what the tables add to an answer, and where its page ends.
type added struct {
	History     []json.RawMessage `json:"history,omitzero"` // nil = not requested, or Unavailable has the reason
	Unavailable string            `json:"history_unavailable,omitempty"`
	Note        string            `json:"history_note,omitempty"` // what is missing
	Next        string            `json:"next,omitempty"`
}

// addHistory adds as many entries as fit into room, or the reason why there are none. older is the cursor of the rest, if there is one.
func (b *added) addHistory(page HistoryPage, err error, room int, before string) (older string, more bool) {
	if err != nil {
		b.History, b.Unavailable = nil, err.Error()
		return "", false
	}
	b.Note, b.History = page.Note, []json.RawMessage{}
	used := 0
	for i, e := range page.Entries {
		used += len(e.JSON) + 1
		if used > room && i > 0 {
			return before, true
		}
		if before = e.Before; e.JSON != nil {
			b.History = append(b.History, e.JSON)
		}
	}
	return before, page.More
}

// encode writes an answer.
func encode(answer any) ([]byte, error) { return marshal(map[string]any{"data": answer}) }

// marshal writes texts as they are.
func marshal(answer any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(answer); err != nil {
		return nil, fmt.Errorf("encoding the answer: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// shownPlace is the end of a page of customer.show: its last coupon, and the position in the history.
type shownPlace struct {
	Campaign string `json:"c,omitempty"`
	N        uint32 `json:"n,omitempty"`
	History  string `json:"h,omitempty"`
	// Listed and HistoryEnd: no more coupons, no more history.
	Listed     bool `json:"l,omitempty"`
	HistoryEnd bool `json:"e,omitempty"`
}
