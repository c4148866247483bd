package service

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"

	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// item is one element of a lane's answer, with its sort key.
type item struct {
	campaign string
	raw      json.RawMessage
}

// queryAll queries the owners of all lanes and merges their lists by campaign name. One lane without an answer fails the
// whole: a list that omits a quarter of the campaigns would look complete.
//
// A lane may cut its list short because of its size. Then the whole ends with the last campaign that this lane listed, and
// more is true: after it something would be missing.
func (s *Service) queryAll(ctx context.Context, q *query) (all []item, more bool, err error) {
	parts := make([][]item, s.log.Lanes)
	cut := make([]bool, s.log.Lanes)
	g, ctx := errgroup.WithContext(ctx)
	for lane := range s.log.Lanes {
		g.Go(func() error {
			reply, err := s.queryLane(ctx, lane, q)
			if err != nil {
				return err
			}
			parts[lane], cut[lane], err = items(reply)
			if err != nil {
				return fmt.Errorf("lane %d: %w", lane, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, false, err
	}
	last := ""
	for lane, p := range parts {
		all = append(all, p...)
		if cut[lane] && len(p) > 0 {
			if end := p[len(p)-1].campaign; !more || end < last {
				last, more = end, true
			}
		}
	}
	// Stable: a campaign lives on one lane, whose own order within it stays.
	sort.SliceStable(all, func(i, j int) bool { return all[i].campaign < all[j].campaign })
	if more {
		all = all[:sort.Search(len(all), func(i int) bool { return all[i].campaign > last })]
	}
	return all, more, nil
}

// items parses a lane's {"data":[…]}. more is true if the lane cut it short.
func items(reply []byte) (list []item, more bool, err error) {
	var body struct {
		Data []json.RawMessage
		More bool
	}
	if err := json.Unmarshal(reply, &body); err != nil {
		return nil, false, fmt.Errorf("its answer is not a list: %w", err)
	}
	if body.Data == nil {
		if out, err := wire.ParseOutcome(reply); err == nil && out.Refused() {
			return nil, false, fmt.Errorf("%s: %s", out.Refusal, out.Message)
		}
	}
	list = make([]item, len(body.Data))
	for i, raw := range body.Data {
		var key struct{ Campaign string }
		if err := json.Unmarshal(raw, &key); err != nil {
			return nil, false, fmt.Errorf("its answer holds something without a campaign: %w", err)
		}
		list[i] = item{campaign: key.Campaign, raw: raw}
	}
	return list, body.More, nil
}

// maxReply is the most bytes of data in an answer, if the server accepts messages of that size.
const maxReply = 768 << 10

// room returns how many bytes of data an answer may have: three quarters of the server's max_payload, whose default is
// 1 MiB, so that the rest of the answer fits as well.
func (s *Service) room() int {
	if most := int(s.nc.MaxPayload()); most > 0 {
		return min(maxReply, most/4*3)
	}
	return maxReply
}

// list answers campaign.list: one page of campaigns by name.
func (s *Service) list(ctx context.Context, q *query) ([]byte, error) {
	limit := q.Limit
	q.Limit++ // by the one more it shows that there are more
	all, more, err := s.queryAll(ctx, q)
	if err != nil {
		return nil, err
	}
	more = more || len(all) > limit
	all = all[:min(limit, len(all))]
	own := q.included(all)
	data, kept := join(own, s.room())
	next := ""
	if kept < len(own) {
		next = q.next(own[kept-1].campaign)
	} else if more {
		next = q.next(all[len(all)-1].campaign)
	}
	return encode(struct {
		Items json.RawMessage `json:"items"`
		Next  string          `json:"next,omitempty"`
	}{data, next})
}

// join makes a JSON array of as many items as fit, at least one.
func join(all []item, room int) (array []byte, kept int) {
	array = []byte{'['}
	for i, it := range all {
		if i > 0 {
			if len(array)+len(it.raw) > room {
				break
			}
			array = append(array, ',')
		}
		array = append(array, it.raw...)
		kept++
	}
	return append(array, ']'), kept
}
