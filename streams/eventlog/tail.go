package eventlog

import (
	"context"
	"errors"
)

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
	for seq := last; seq > 0; seq-- {
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
		m, err := j.Read(&raw)
		switch {
		case errors.Is(err, ErrForeign):
			tail.Foreign = append(tail.Foreign, seq)
		case err != nil:
			tail.Unread, tail.unread = append(tail.Unread, Unread{s.name, seq, err.Error()}), err
		default:
			tail.Message = &m
			return tail, nil
		}
	}
	return tail, nil
}
