package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// folded is the content of the log about the demo's campaigns, folded by the oracle of the tests. Each campaign has a fold
// of its own: it lives on one lane, so that its lane time does not run back.
type folded struct {
	folds     map[string]*oracle.Fold   // by campaign
	published map[string]map[string]int // campaign → customer and due instant → lines on the reminder streams
}

func newFolded(campaigns ...string) *folded {
	l := &folded{folds: map[string]*oracle.Fold{}, published: map[string]map[string]int{}}
	for _, name := range campaigns {
		l.folds[name], l.published[name] = oracle.New(), map[string]int{}
	}
	return l
}

// fold applies one line of an event or reminder stream. It ignores lines of other campaigns, also those of a newer server
// that cannot be parsed.
func (l *folded) fold(where string, raw []byte) error {
	var head struct {
		Campaign string `json:"campaign"`
	}
	if err := json.Unmarshal(raw, &head); err == nil && l.folds[head.Campaign] == nil {
		return nil
	}
	var ev wire.Event
	if err := wire.ParseEvent(raw, &ev); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	f := l.folds[ev.Campaign]
	switch {
	case f == nil:
	case ev.Type == wire.ReminderDue:
		l.published[ev.Campaign][ev.CustomerID+" "+ev.DueAt.String()]++
	default:
		f.Apply(where, &ev)
	}
	return nil
}

// campaign is the state of a campaign, an empty one before its creation is read.
func (l *folded) campaign(name string) *oracle.Campaign {
	if c := l.folds[name].Campaigns[name]; c != nil {
		return c
	}
	return &oracle.Campaign{}
}

// violations are those of all campaigns.
func (l *folded) violations() (all []string) {
	for _, f := range l.folds {
		all = append(all, f.Violations...)
	}
	return all
}

// byStatus counts the coupons of all campaigns.
func (l *folded) byStatus() map[string]int {
	counts := map[string]int{}
	for _, f := range l.folds {
		for status, n := range f.ByStatus() {
			counts[status] += n
		}
	}
	return counts
}

// byState counts the reminders of a campaign. States without reminders are missing, as in SQL.
func (l *folded) byState(campaign string) map[string]int {
	counts := map[string]int{}
	for _, r := range l.campaign(campaign).Reminders {
		counts[r.State.String()]++
	}
	return counts
}

// redemptions counts redemptions in force of all campaigns, coupons with more than one, and redemptions after the expiry.
func (l *folded) redemptions() (inForce, again, late int) {
	for name := range l.folds {
		c := l.campaign(name)
		for _, k := range c.Coupons {
			inForce += int(k.Count)
			if k.Count > 1 {
				again++
			}
			for _, r := range k.Redemptions {
				if r.At >= c.Expires(k) {
					late++
				}
			}
		}
	}
	return inForce, again, late
}

// holders is the most holders that one code has.
func (l *folded) holders() (most int) {
	customers := map[string]map[string]bool{}
	for name := range l.folds {
		for _, k := range l.campaign(name).Coupons {
			if customers[k.Code] == nil {
				customers[k.Code] = map[string]bool{}
			}
			customers[k.Code][k.Customer] = true
			most = max(most, len(customers[k.Code]))
		}
	}
	return most
}

// publishedOnce counts the fired reminders of a campaign that are published exactly once, and those published more often.
func (l *folded) publishedOnce(campaign string) (once, more int) {
	for _, n := range l.published[campaign] {
		if n == 1 {
			once++
		} else {
			more++
		}
	}
	return once, more
}

// expiredThrough is true if the expiries of a campaign are announced through an instant.
func (l *folded) expiredThrough(campaign string, at time.Time) bool {
	return l.campaign(campaign).Through >= wire.At(at)
}

// mark is the last sequence of every stream at one moment.
type mark map[string]uint64

func markNow(ctx context.Context, js jetstream.JetStream, lanes int) (mark, error) {
	m := mark{}
	for lane := range lanes {
		for _, name := range []string{topology.EvtStream(lane), topology.RmdStream(lane)} {
			s, err := js.Stream(ctx, name)
			if err != nil {
				return nil, fmt.Errorf("opening stream %s: %w", name, err)
			}
			m[name] = s.CachedInfo().State.LastSeq
		}
	}
	return m, nil
}

// read folds the messages of the streams after from and up to until.
func (l *folded) read(ctx context.Context, js jetstream.JetStream, from, until mark) error {
	for name, last := range until {
		if last <= from[name] {
			continue
		}
		if err := l.readStream(ctx, js, name, from[name]+1, last); err != nil {
			return fmt.Errorf("reading stream %s: %w", name, err)
		}
	}
	return nil
}

func (l *folded) readStream(ctx context.Context, js jetstream.JetStream, name string, first, last uint64) error {
	consumer, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first,
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		msg, err := messages.Next()
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		for raw := range bytes.Lines(msg.Data()) {
			if raw = bytes.TrimSpace(raw); len(raw) == 0 {
				continue
			}
			if err := l.fold(fmt.Sprintf("%s, message %d", name, meta.Sequence.Stream), raw); err != nil {
				return err
			}
		}
		if meta.Sequence.Stream >= last {
			return nil
		}
	}
}
