package demo

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// events is the content of the log about the demo's campaigns, folded by the oracle of the tests.
type events struct {
	*oracle.Fold
	campaigns []string
	published map[string]int // campaign, customer and due instant → lines on the reminder streams
	lanes     map[int]*lane  // those of the campaigns
}

// lane is what is read of a lane, from its end at the start of the demo on.
type lane struct {
	clock   wire.Instant       // of its newest event: that of another lane may be later
	streams []*eventlog.Reader // events, reminders
}

func newEvents(campaigns ...string) *events {
	return &events{Fold: oracle.New(), campaigns: campaigns, published: map[string]int{}, lanes: map[int]*lane{}}
}

// open starts reading at the present end of the log. The caller closes it, also after an error.
func (l *events) open(ctx context.Context, js jetstream.JetStream, log topology.Log) error {
	for _, name := range l.campaigns {
		number := topology.LaneOf(name, log.Lanes)
		if l.lanes[number] != nil {
			continue
		}
		l.lanes[number] = &lane{}
		for _, stream := range []eventlog.Stream{eventlog.Events(js, number).In(log), eventlog.Reminders(js, number).In(log)} {
			end := eventlog.Position{Log: log.UUID, Lane: number}
			tail, err := stream.Tail(ctx)
			if err == nil && tail.Message != nil {
				end = tail.Message.Position(log.UUID, number)
			}
			var reader *eventlog.Reader
			if err == nil {
				reader, err = stream.Open(ctx, log.UUID, end, eventlog.ReaderOptions{})
			}
			if err != nil {
				return fmt.Errorf("opening stream %s: %w", stream.Name(), err)
			}
			l.lanes[number].streams = append(l.lanes[number].streams, reader)
		}
	}
	return nil
}

func (l *events) close() {
	for _, lane := range l.lanes {
		for _, reader := range lane.streams {
			reader.Close()
		}
	}
}

// read folds what was added to the log.
func (l *events) read(ctx context.Context) error {
	for number, lane := range l.lanes {
		l.Clock = lane.clock
		for _, reader := range lane.streams {
			err := reader.CatchUp(ctx, func(batch []eventlog.Message) error {
				for _, m := range batch {
					for n, line := range eventlog.Lines(m.Payload) {
						if err := l.fold(fmt.Sprintf("message %d, line %d", m.Sequence, n+1), line); err != nil {
							return err
						}
					}
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("reading lane %d: %w", number, err)
			}
		}
		lane.clock = l.Clock
	}
	return nil
}

// fold applies one line of an event or reminder stream. It ignores lines of other campaigns.
func (l *events) fold(where string, raw []byte) error {
	var ev wire.Event
	if err := wire.ParseEvent(raw, &ev); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	switch {
	case !slices.Contains(l.campaigns, ev.Campaign):
	case ev.Type == wire.ReminderDue:
		l.published[ev.Campaign+" "+ev.CustomerID+" "+ev.DueAt.String()]++
	default:
		l.Apply(where, &ev)
	}
	return nil
}

// countLog is what the log has.
func (d *show) countLog() counts {
	c := counts{"distinct codes": len(d.log.Holders(d.sale))}
	for status, n := range d.log.ByStatus() {
		c["coupons in status "+status] = n
	}
	coupons := map[string]int{} // of a code
	for name, campaign := range d.log.Campaigns {
		if name == d.sale {
			c["coupons claimed"] = len(campaign.Coupons)
		}
		for _, k := range campaign.Coupons {
			coupons[k.Code]++
			c["holders of one code, at most"] = max(c["holders of one code, at most"], coupons[k.Code])
			c["coupons redeemed"] += int(k.Count)
			if k.Count > 1 {
				c["redeemed more than once"]++
			}
			for _, r := range k.Redemptions {
				if r.At >= campaign.Expires(k) {
					c["redeemed after they expired"]++
				}
			}
		}
		for _, r := range campaign.Reminders {
			c["reminders "+r.State.String()]++
		}
	}
	for _, lines := range d.log.published {
		if lines == 1 {
			c["customers reminded exactly once"]++
		} else {
			c["customers reminded more than once"]++
		}
	}
	holders := d.log.Holders(d.sale)
	for i, o := range d.first {
		if o.Status == wire.StatusClaimed && holders[o.Code] != customer(i) {
			c["answered claims missing from the log"]++
		}
	}
	return c
}
