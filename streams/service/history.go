package service

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
)

// History reads from the tables what the lanes' state does not have: what happened to a coupon or a customer, newest first,
// up to limit entries before a cursor ("" = the newest). Both methods return an error while the tables are unreachable, and
// ErrBadCursor for a before that they never returned. They are called by several goroutines at once.
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
	JSON json.RawMessage
	// Before is the cursor of the entries before this one.
	Before string
}

// ErrBadCursor is the kind of the error for a cursor that no page returned.
var ErrBadCursor = errors.New("must be the next of an answer, or be omitted for the newest")

const (
	// MaxShown is the most coupons, and the most entries of a history, in one answer; shown is the default.
	MaxShown = 500
	shown    = 100
	// historyWait bounds the tables' answer: they are optional, and the lane has answered already. It is within the 3 s after
	// which the SDK retries.
	historyWait = 2 * time.Second
)

// coupon answers coupon.show: the lane's state and a page of the tables' history.
func (s *Service) coupon(ctx context.Context, q *query) ([]byte, error) {
	limit, before := q.paging()
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
	page, err := s.history(ctx, q, func(ctx context.Context, h History) (HistoryPage, error) {
		return h.Coupon(ctx, view.Campaign, view.N, limit, before)
	})
	if errors.Is(err, ErrBadCursor) {
		return badCursor(err), nil
	}
	data, wrong := q.shown(body.Data)
	if wrong != nil {
		return nil, wrong
	}
	out := shownBody{Data: data}
	q.about = audit.Coupon(view.Campaign, view.N, q.N != 0)
	if older, more := out.addHistory(page, err, s.room(), before); more {
		out.Next, out.More = older, true
	}
	return encode(out)
}

// customer answers customer.show: a page of the customer's coupons from all lanes, and one of the tables' history.
func (s *Service) customer(ctx context.Context, q *query) ([]byte, error) {
	limit, given := q.paging()
	from, err := parseShownCursor(given)
	if err != nil {
		return badCursor(err), nil
	}
	out := shownBody{Data: json.RawMessage("[]"), History: []json.RawMessage{}}
	next := from
	if !from.Listed {
		q.Limit, q.After, q.AfterN = limit+1, from.Campaign, from.N
		all, more, err := s.queryAll(ctx, q)
		if err != nil {
			return nil, err
		}
		more = more || len(all) > limit
		all = all[:min(limit, len(all))]
		for i := range all {
			if all[i].raw, err = q.shown(all[i].raw); err != nil {
				return nil, err
			}
		}
		// At most half, to leave room for the history.
		data, kept := join(all, s.room()/2)
		out.Data = data
		if next.Listed = !more && kept == len(all); !next.Listed {
			var last struct {
				Campaign string
				N        uint32
			}
			if err := json.Unmarshal(all[kept-1].raw, &last); err != nil || last.N == 0 {
				return nil, fmt.Errorf("a lane's answer has an item that is no coupon: %.200s", all[kept-1].raw)
			}
			next.Campaign, next.N = last.Campaign, last.N
		}
	}
	if !from.HistoryEnd {
		page, err := s.history(ctx, q, func(ctx context.Context, h History) (HistoryPage, error) {
			return h.Customer(ctx, q.CustomerID, limit, from.History)
		})
		if errors.Is(err, ErrBadCursor) {
			return badCursor(err), nil
		}
		// While the tables are unreachable the next page starts at the same position of the history.
		if older, more := out.addHistory(page, err, s.room(), from.History); more {
			next.History = older
		} else {
			next.HistoryEnd = err == nil
		}
	}
	q.about = q.CustomerID
	if out.More = !next.Listed || out.History != nil && !next.HistoryEnd; out.More {
		out.Next = next.String()
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
	switch {
	case errors.Is(err, ErrBadCursor):
		return HistoryPage{}, ErrBadCursor // without its wrapping: the tables did answer
	case err != nil:
		return HistoryPage{}, fmt.Errorf("the read tables do not answer: %w", err)
	}
	for i := range page.Entries {
		if page.Entries[i].JSON, err = q.shown(page.Entries[i].JSON); err != nil {
			return HistoryPage{}, err
		}
	}
	return page, nil
}

// shownBody is the answer of a show query. Nothing is omitted without more and next.
type shownBody struct {
	Data        json.RawMessage   `json:"data"`
	History     []json.RawMessage `json:"history,omitzero"` // nil = Unavailable has the reason
	Unavailable string            `json:"history_unavailable,omitempty"`
	Note        string            `json:"history_note,omitempty"` // what is missing
	More        bool              `json:"more,omitempty"`
	Next        string            `json:"next,omitempty"`
}

// addHistory adds as many entries as fit, or the reason why there are none. older is the cursor of the rest, if there is one.
func (b *shownBody) addHistory(page HistoryPage, err error, room int, before string) (older string, more bool) {
	if err != nil {
		b.History, b.Unavailable = nil, err.Error()
		return "", false
	}
	b.Note, b.History = page.Note, []json.RawMessage{}
	used := len(b.Data)
	for i, e := range page.Entries {
		used += len(e.JSON) + 1
		if used > room && i > 0 {
			return before, true
		}
		b.History, before = append(b.History, e.JSON), e.Before
	}
	return before, page.More
}

// encode writes an answer, with texts as they are.
func encode(answer any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(answer); err != nil {
		return nil, fmt.Errorf("encoding the answer: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

func badCursor(err error) []byte {
	out := wire.Outcome{Status: wire.StatusRefused, Refusal: wire.Invalid, Message: "before: " + err.Error()}
	return out.AppendJSON(nil)
}

// shownCursor is the end of a page of customer.show: its last coupon, and the position in the history.
type shownCursor struct {
	Campaign string `json:"c,omitempty"`
	N        uint32 `json:"n,omitempty"`
	History  string `json:"h,omitempty"`
	// Listed and HistoryEnd: no more coupons, no more history.
	Listed     bool `json:"l,omitempty"`
	HistoryEnd bool `json:"e,omitempty"`
}

// String has no meaning for clients.
func (c shownCursor) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic("service: a cursor is no JSON: " + err.Error()) // it has texts and numbers only
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseShownCursor(s string) (c shownCursor, err error) {
	if s == "" {
		return c, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || json.Unmarshal(text, &c) != nil || c.Campaign != "" && (c.N == 0 || !wire.ValidCampaignName(c.Campaign)) {
		return c, ErrBadCursor
	}
	return c, nil
}
