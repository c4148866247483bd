package readmodel

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// $1 = campaign   $2 = place before which   $3 = how many
//
// The row after a page, of a type that has settings, is what its last change is compared with.
const changesSQL = `
SELECT e.at, e.type, c.lane, e.place FROM scrip_tables.campaign_event e JOIN scrip_tables.campaign c ON c.campaign = e.campaign
WHERE e.campaign = $1 AND e.place < $2 ORDER BY e.place DESC LIMIT $3`

const settingsBeforeSQL = `
SELECT e.at, e.type, c.lane, e.place FROM scrip_tables.campaign_event e JOIN scrip_tables.campaign c ON c.campaign = e.campaign
WHERE e.campaign = $1 AND e.place < $2 AND e.type IN ('campaign.created', 'campaign.updated') ORDER BY e.place DESC LIMIT 1`

// Changes implements ops.Changes: the tables have when, the log what and by whom.
func (s *History) Changes(ctx context.Context, q ops.ListChangesOf) (page ops.Page[ops.CampaignChange], err error) {
	before, err := int64(1)<<62, error(nil)
	if q.After != "" {
		if before, err = strconv.ParseInt(q.After, 10, 64); err != nil {
			return page, fmt.Errorf("%q is no place in a history", q.After)
		}
	}
	all, err := s.changes(ctx, changesSQL, q.Campaign, before, q.Limit+1)
	if err != nil {
		return page, err
	}
	list, more := cut(all, q.Limit)
	if more {
		page.Next = strconv.FormatInt(place(&list[len(list)-1]), 10)
	}
	var last []ops.CampaignChange
	if len(list) > 0 {
		if last, err = s.changes(ctx, settingsBeforeSQL, q.Campaign, place(&list[len(list)-1])); err != nil {
			return page, err
		}
	}
	found := s.messages(ctx, slices.Concat(list, last))
	events := make([]*wire.Event, len(list))
	var older *wire.Event // with settings
	if len(last) == 1 {
		older, _ = found.event(&last[0]) // else the last change has no settings
	}
	for i := len(list) - 1; i >= 0; i-- {
		c := &list[i]
		if events[i], err = found.event(c); err != nil {
			c.Note = err.Error()
			continue
		}
		c.By, c.ID, c.RequestID = events[i].By, events[i].ID, events[i].RequestID
		switch events[i].Type {
		case wire.CampaignUpdated:
			if older != nil {
				c.Settings = ops.ChangedSettings(older, events[i])
			}
			older = events[i]
		case wire.CampaignCreated:
			older = events[i]
		}
	}
	page.Items = list
	return page, nil
}

func place(c *ops.CampaignChange) int64 {
	return int64(c.Sequence)*positionLines + int64(c.Line)
}

func (s *History) changes(ctx context.Context, sql string, args ...any) ([]ops.CampaignChange, error) {
	return read(ctx, s.db, readWait, func(row pgx.CollectableRow) (c ops.CampaignChange, err error) {
		var at int64
		err = row.Scan(&c.At, &c.Type, &c.Lane, &at)
		c.At, c.Sequence, c.Line = c.At.UTC(), uint64(at/positionLines), int(at%positionLines)
		return c, err
	}, sql, args...)
}

// messages are what the log has at the places of changes of one campaign, and so of one lane.
type messages map[uint64]struct {
	raw eventlog.Raw
	err error
}

func (s *History) messages(ctx context.Context, of []ops.CampaignChange) messages {
	found := messages{}
	var sequences []uint64
	for i := range of {
		sequences = append(sequences, of[i].Sequence)
	}
	slices.Sort(sequences)
	if len(sequences) > 0 {
		s.log(ctx, of[0].Lane, slices.Compact(sequences), func(sequence uint64, raw eventlog.Raw, err error) {
			found[sequence] = struct {
				raw eventlog.Raw
				err error
			}{raw, err}
		})
	}
	return found
}

// event is the event of a change.
func (m messages) event(c *ops.CampaignChange) (*wire.Event, error) {
	raw, err := m[c.Sequence].raw, m[c.Sequence].err
	if err != nil {
		return nil, err
	}
	for n, line := range eventlog.Lines(raw.Data) {
		if n+1 != c.Line {
			continue
		}
		e := &wire.Event{}
		if err := wire.ParseEvent(line, e); err != nil {
			return nil, fmt.Errorf("message %d of lane %d: %w", c.Sequence, c.Lane, err)
		}
		if e.Type.Spec().Name != c.Type {
			break
		}
		return e, nil
	}
	return nil, fmt.Errorf("message %d of lane %d: %w", c.Sequence, c.Lane, errOtherEvent)
}
