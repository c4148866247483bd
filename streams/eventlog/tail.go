package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// sealLook is how many messages before an unsealed one are searched for a sealed one, which would make it foreign, where a
// wrong answer does no harm.
const sealLook = 64

// sealNear is how many messages at the end are searched first.
const sealNear = 1000

// Tail is the end of a stream.
type Tail struct {
	// Last is the sequence of the last message, valid or not, 0 if none: the next Publish must expect it.
	Last uint64
	// Message is the last valid message; nil if there is none.
	Message *Message
	// Foreign are the sequences after Message (after 0, if none) that hold no valid message. Raise an alarm.
	Foreign []uint64
	// Unread are the messages after Message that are scrip's and that this program does not understand. TailAt only.
	Unread []Unread

	unread error // of the first of them
}

// Unread is a message that could not be read.
type Unread struct {
	Stream   string `json:"stream"`
	Sequence uint64 `json:"sequence"`
	Why      string `json:"why"`
}

// Tail reads the end of the stream from its leader, backwards over foreign messages. A message of scrip's that this program
// does not understand ends it with ErrNewerFormat or ErrUnreadable.
//
// While it is not known whether sealing has begun, an unsealed message counts as scrip's if none of the 64 before it is
// sealed. A caller that decides by the answer calls Settled first.
func (s Stream) Tail(ctx context.Context) (Tail, error) {
	bounds, err := s.Bounds(ctx)
	if err != nil {
		return Tail{}, err
	}
	tail, err := s.TailAt(ctx, bounds.Last)
	if err == nil && len(tail.Unread) > 0 {
		err = tail.unread
	}
	if err != nil {
		return Tail{}, err
	}
	return tail, nil
}

// TailAt returns the tail of the stream at the time when it ended at last. Messages that this program does not understand are
// listed, and are no error.
func (s Stream) TailAt(ctx context.Context, last uint64) (Tail, error) {
	j, err := s.Judge(ctx)
	if err != nil {
		return Tail{}, err
	}
	tail := Tail{Last: last}
	var unsealed *Message // ours, unless a message before it is sealed
	for seq := last; seq > 0 && (unsealed == nil || unsealed.Sequence-seq <= sealLook); seq-- {
		raw, err := s.Get(ctx, seq)
		if errors.Is(err, ErrTrimmed) {
			break
		}
		if errors.Is(err, ErrHole) {
			tail.Foreign = append(tail.Foreign, seq)
			continue
		}
		if err != nil {
			return Tail{}, err
		}
		if unsealed != nil && !s.sealed(&raw) {
			continue
		}
		m, err := j.Single(&raw)
		switch {
		case errors.Is(err, ErrForeign):
			tail.Foreign = append(tail.Foreign, seq)
		case errors.Is(err, ErrNewerFormat), errors.Is(err, ErrUnreadable):
			if unsealed != nil { // sealed, and so the unsealed ones after it are foreign
				tail.Foreign = append(tail.Foreign, between(unsealed.Sequence, seq)...)
				unsealed = nil
			}
			tail.Unread, tail.unread = append(tail.Unread, Unread{s.name, seq, err.Error()}), err
		case err != nil:
			return Tail{}, err
		case m.SealedFrom == 0 && !s.settled:
			unsealed = &m
		default:
			if unsealed != nil {
				tail.Foreign = append(tail.Foreign, between(unsealed.Sequence, seq)...)
			}
			tail.Message = &m
			return tail, nil
		}
	}
	tail.Message = unsealed
	return tail, nil
}

// between returns the sequences from one down to another, which is excluded.
func between(from, to uint64) (all []uint64) {
	for seq := from; seq > to; seq-- {
		all = append(all, seq)
	}
	return all
}

// Settled returns the stream with the start of sealing, which it reads from a sealed message near the end. If there is none
// it reads the headers of all messages: once in the life of a log, before it is sealed, or when another program floods it.
func (s Stream) Settled(ctx context.Context) (Stream, error) {
	if s.settled {
		return s, nil
	}
	bounds, err := s.Bounds(ctx)
	if err != nil || bounds.Last == 0 {
		return s, err
	}
	if s.sealedFrom, err = s.sealedAt(ctx, bounds.Last); err != nil {
		return s, err
	}
	near := bounds.Last - min(bounds.Last, sealNear)
	if s.sealedFrom == 0 {
		if s.sealedFrom, err = s.firstSeal(ctx, near, bounds.Last); err != nil {
			return s, err
		}
	}
	if s.sealedFrom == 0 {
		if s.sealedFrom, err = s.firstSeal(ctx, 0, near); err != nil {
			return s, err
		}
	}
	s.settled = true
	return s, nil
}

// SealedFrom returns where sealing began, 0 = it did not, as far as it is known: see Settled.
func (s Stream) SealedFrom() uint64 { return s.sealedFrom }

// sealedAt returns where sealing began according to a message, 0 if it is not sealed.
func (s Stream) sealedAt(ctx context.Context, sequence uint64) (uint64, error) {
	raw, err := s.Get(ctx, sequence)
	if errors.Is(err, ErrHole) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !s.sealed(&raw) {
		return 0, nil
	}
	from, _ := parseNumber(raw.Header.Get(topology.HeaderSealedFrom))
	return from, nil
}

// firstSeal reads the headers of the messages after one, up to another, until one is sealed.
func (s Stream) firstSeal(ctx context.Context, after, last uint64) (uint64, error) {
	if after == last {
		return 0, nil
	}
	f, err := s.openFeed(ctx, after, nil, true)
	if err != nil {
		return 0, fmt.Errorf("finding where sealing begins: %w", err)
	}
	defer f.Close()
	var batch []Raw
	for seq := after; seq < last; {
		if batch, err = f.NextBatch(ctx, feedMessages, batch[:0]); err != nil {
			return 0, fmt.Errorf("finding where sealing begins: %w", err)
		}
		for i := range batch {
			seq = batch[i].Sequence
			if batch[i].Header.Get(topology.HeaderSeal) == "" {
				continue
			}
			if from, err := s.sealedAt(ctx, seq); err != nil || from != 0 {
				return from, err
			}
		}
	}
	return 0, nil
}
