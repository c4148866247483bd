package hold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// Key is the key of the bucket push.Bucket that has the positions.
	Key = "hold"
	// saveEvery is how often positions are recorded. After a crash so much is read again.
	saveEvery = 5 * time.Second
	// daysFor is how long messages count: a day of one zone begins 26 hours before it begins everywhere, and ends 26 after.
	daysFor = 52 * time.Hour
)

// State is what a Stage has done, and what it holds.
type State struct {
	Counts
	// Held back now.
	Held uint64 `json:"held"`
	// At is when that was recorded.
	At time.Time `json:"at"`
}

// mark is the value of Key.
type mark struct {
	Format int `json:"format"`
	// Lanes are the positions after which reminders may be held, Out that after which what was let out is read to know which
	// are not any more.
	Lanes []eventlog.Position `json:"lanes"`
	Out   eventlog.Position   `json:"out"`
	// Counted is the message of SCRIP_PUSH_OUT up to which the counts are.
	Counted uint64 `json:"counted"`
	State
}

// open reads what is stored, and opens the lanes.
func (r *run) open(ctx context.Context) (err error) {
	if r.kv, err = push.OpenBucket(ctx, r.JetStream); err != nil {
		return err
	}
	if r.mark, err = readMark(ctx, r.kv); err != nil {
		return err
	}
	err = r.openAt(ctx, &r.mark)
	for _, lost := range []error{eventlog.ErrLostTail, eventlog.ErrDiverged, eventlog.ErrTrimmed, eventlog.ErrHole} {
		if errors.Is(err, lost) {
			r.Logger.WarnContext(ctx, "the positions of reminders that are held back are of another log, which was restored; all of it is read", "err", err)
			r.close()
			r.lanes, r.lines, r.people, r.mark = nil, map[string]*line{}, newShards(len(r.people)), mark{}
			err = r.openAt(ctx, &r.mark)
			break
		}
	}
	if err != nil {
		return err
	}
	r.mark.Held, r.sealer = 0, r.out.Sealer()
	r.writer, err = r.out.NewAppender(0)
	return err
}

func (r *run) openAt(ctx context.Context, at *mark) error {
	lanes := make([]eventlog.Position, r.Log.Lanes)
	for n := range lanes {
		lanes[n] = eventlog.Position{Log: r.Log.UUID, Lane: n}
		if n < len(at.Lanes) {
			lanes[n] = at.Lanes[n]
		}
	}
	if at.Out.Log == "" {
		at.Out.Log = r.Log.UUID
	}
	out, err := r.out.Open(ctx, r.Log.UUID, at.Out, eventlog.ReaderOptions{Logger: r.Logger})
	if err != nil {
		return err
	}
	defer out.Close()
	r.done, r.pasts = map[uint64]struct{}{}, []past{{sequence: at.Out.Sequence}}
	if err := out.CatchUp(ctx, r.letOut); err != nil {
		return err
	}
	r.last = out.Sequence()
	for n, from := range lanes {
		l := &lane{stream: eventlog.Reminders(r.JetStream, n).In(r.Log).Narrow()}
		bounds, err := l.stream.Bounds(ctx)
		if err != nil {
			return err
		}
		l.end = bounds.Last
		if l.reader, err = l.stream.Open(ctx, r.Log.UUID, from, eventlog.ReaderOptions{Logger: r.Logger}); err != nil {
			return err
		}
		r.lanes = append(r.lanes, l)
	}
	return nil
}

// letOut takes in what was let out before.
func (r *run) letOut(batch []eventlog.Message) error {
	var ev wire.Event
	for i := range batch {
		m := &batch[i]
		r.pass(m.Time, m.Sequence-1)
		for _, text := range eventlog.Lines(m.Payload) {
			if err := ev.ParseDue(text); err != nil {
				return fmt.Errorf("stream %s, message %d: a line that is none: %w", r.out.Name(), m.Sequence, err)
			}
			if m.Sequence > r.mark.Counted {
				r.mark.line(&ev)
			}
			hash := hashOf(lineKey(&ev))
			for n, customer := range ev.CustomerIDs {
				r.done[identity(hash, customer, ev.Rs[n])] = struct{}{}
				if r.rules.most > 0 && !ev.Merged && ev.Withheld == "" {
					p := person{id: customer}
					p.zone, _ = wire.Zone(ev.Zone)
					r.people.of(hashOf(customer)).count(customer, m.Time.In(zoneOf(&p, &r.rules)), &r.rules)
				}
			}
		}
	}
	if len(batch) > 0 {
		r.mark.Counted = max(r.mark.Counted, batch[len(batch)-1].Sequence)
	}
	return nil
}

// pass remembers once in an hour what SCRIP_PUSH_OUT ended with.
func (r *run) pass(at time.Time, sequence uint64) {
	if last := r.pasts[len(r.pasts)-1]; at.Sub(last.at) >= time.Hour {
		r.pasts = append(r.pasts, past{at, sequence})
	}
	for len(r.pasts) > 1 && at.Sub(r.pasts[1].at) > daysFor {
		r.pasts = r.pasts[1:]
	}
}

// save records the positions. After a crash before it more is read.
func (r *run) save(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, storeFor)
	defer done()
	r.savedAt = r.Clock.Now()
	if r.done != nil { // what is read again has not been compared yet
		return nil
	}
	r.pass(r.savedAt, r.last)
	for _, s := range r.people {
		s.forget(r.savedAt)
	}
	out := r.last
	if r.rules.most > 0 {
		out = r.pasts[0].sequence
	}
	next := r.mark
	next.Format, next.Lanes, next.At = push.Format, make([]eventlog.Position, len(r.lanes)), r.savedAt.UTC()
	for n, l := range r.lanes {
		from := l.reader.Sequence()
		if len(l.inputs) > 0 {
			from, out = l.inputs[0].sequence-1, min(out, l.inputs[0].out)
		}
		var before eventlog.Position
		if n < len(r.saved.Lanes) {
			before = r.saved.Lanes[n]
		}
		var err error
		if next.Lanes[n], err = r.position(ctx, l.stream, n, from, before); err != nil {
			return err
		}
	}
	var err error
	if next.Out, err = r.position(ctx, r.out, 0, out, r.saved.Out); err != nil {
		return err
	}
	if was := &r.saved; slices.Equal(next.Lanes, was.Lanes) && next.Out == was.Out && next.Counts == was.Counts && next.Held == was.Held {
		return nil
	}
	data, err := json.Marshal(&next)
	if err == nil {
		_, err = r.kv.Put(ctx, Key, data)
	}
	if err != nil {
		return fmt.Errorf("bucket %s: %w", topology.PushBucket, err)
	}
	r.saved = next
	return nil
}

// position is that of a message, which is read unless it is the one before.
func (r *run) position(ctx context.Context, s eventlog.Stream, lane int, sequence uint64, before eventlog.Position) (eventlog.Position, error) {
	if before.Sequence == sequence && before.Log != "" {
		return before, nil
	}
	return s.Position(ctx, r.Log.UUID, lane, sequence)
}

func readMark(ctx context.Context, kv jetstream.KeyValue) (m mark, err error) {
	_, err = push.ReadKey(ctx, kv, Key, &m, &m.Format)
	return m, err
}

// Recorded returns what the stage of some server recorded last; ok is false if nothing was ever held back.
func Recorded(ctx context.Context, js jetstream.JetStream) (s State, ok bool, err error) {
	kv, err := js.KeyValue(ctx, topology.PushBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return s, false, nil
	}
	var m mark
	if err == nil {
		m, err = readMark(ctx, kv)
	}
	return m.State, m.Format > 0, err
}
