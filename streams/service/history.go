package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
)

// History is what the read tables know beyond the lanes' state. Both methods return something that encoding/json can
// write, and an error while the tables are away. They are called by several goroutines at once.
type History interface {
	Coupon(ctx context.Context, campaign string, n uint32) (any, error)
	Customer(ctx context.Context, customerID string) (any, error)
}

// historyWait is the most the tables may take: they are an extra, and the lane has answered already.
const historyWait = time.Second

// coupon answers coupon.show: the lane's state and the tables' history.
func (s *Service) coupon(ctx context.Context, q *query) ([]byte, error) {
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
	return s.withHistory(ctx, body.Data, func(ctx context.Context, h History) (any, error) {
		return h.Coupon(ctx, view.Campaign, view.N)
	})
}

// customer answers customer.show from all lanes, and the tables' history.
func (s *Service) customer(ctx context.Context, q *query) ([]byte, error) {
	q.Limit = maxListed
	all, err := s.askAll(ctx, q)
	if err != nil {
		return nil, err
	}
	data, _ := join(all)
	return s.withHistory(ctx, data, func(ctx context.Context, h History) (any, error) {
		return h.Customer(ctx, q.CustomerID)
	})
}

// withHistory adds the history to an answer, or why there is none.
func (s *Service) withHistory(ctx context.Context, data []byte, get func(context.Context, History) (any, error)) ([]byte, error) {
	history, err := s.history(ctx, get)
	body := append([]byte(`{"data":`), data...)
	switch {
	case err == nil && len(body)+len(history) > maxReply:
		err = fmt.Errorf("it has %d bytes, too many for a reply; read it in SQL", len(history))
		fallthrough
	case err != nil:
		why, quoteErr := json.Marshal(err.Error())
		if quoteErr != nil {
			return nil, fmt.Errorf("encoding the answer: %w", quoteErr)
		}
		body = append(append(body, `,"history_unavailable":`...), why...)
	default:
		body = append(append(body, `,"history":`...), history...)
	}
	return append(body, '}'), nil
}

func (s *Service) history(ctx context.Context, get func(context.Context, History) (any, error)) ([]byte, error) {
	if s.opts.History == nil {
		return nil, errors.New("this server has no read tables")
	}
	ctx, cancel := context.WithTimeout(ctx, historyWait)
	defer cancel()
	history, err := get(ctx, s.opts.History)
	if err != nil {
		return nil, fmt.Errorf("the read tables do not answer: %w", err)
	}
	return json.Marshal(history)
}
