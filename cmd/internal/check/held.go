package check

import (
	"context"
	"fmt"
	"hash/maphash"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// LetOut counts reminders on SCRIP_PUSH_OUT.
type LetOut struct {
	Sent, Merged, Withheld int
}

// heldKey is a hash of what a reminder is.
type heldKey uint64

var heldSeed = maphash.MakeSeed()

func keyOf(ev *wire.Event) heldKey {
	return heldKey(maphash.Comparable(heldSeed, struct {
		campaign, customer string
		r                  uint64
		at                 wire.Instant
	}{ev.Campaign, ev.CustomerID, ev.R, ev.At}))
}

// readOut reads SCRIP_PUSH_OUT up to a sequence, which was its end before the lanes were read: each reminder on it must be one of a
// message that was to be held back, and be there once.
func (f *Fold) readOut(ctx context.Context, js jetstream.JetStream, log topology.Log, last uint64) error {
	if f.out.Log == "" {
		f.out.Log = log.UUID
	}
	if last <= f.out.Sequence {
		return nil
	}
	reader, err := eventlog.Out(js).In(log).Open(ctx, log.UUID, f.out, quiet)
	if err != nil {
		return err
	}
	defer reader.Close()
	return reader.CatchUp(ctx, func(batch []eventlog.Message) error {
		for i := range batch {
			m := &batch[i]
			if m.Sequence > last {
				return nil
			}
			if err := f.checkOut(m); err != nil {
				return err
			}
			f.out = m.Position(log.UUID, 0)
		}
		return nil
	})
}

func (f *Fold) checkOut(m *eventlog.Message) error {
	var ev wire.Event
	before := 0
	for n, text := range eventlog.Lines(m.Payload) {
		if err := wire.ParseEvent(text, &ev); err != nil {
			return fmt.Errorf("%s, message %d, line %d: %w", topology.PushOutStream, m.Sequence, n+1, err)
		}
		where := fmt.Sprintf("%s, message %d, line %d", topology.PushOutStream, m.Sequence, n+1)
		customers := len(ev.CustomerIDs)
		switch {
		case ev.Withheld != "":
			f.LetOut.Withheld += customers
		case ev.Merged && customers != before:
			f.Violate("%s: %d customers, and the line that they are merged into has %d", where, customers, before)
		case ev.Merged:
			f.LetOut.Merged += customers
		default:
			f.LetOut.Sent += customers
		}
		before = customers
		for one := range ev.Each() {
			key := keyOf(one)
			if !f.Held[key] {
				f.Violate("%s: %s is let out, but is not held back, or was let out before", where, describeEvent(one))
			}
			delete(f.Held, key)
		}
	}
	return nil
}
