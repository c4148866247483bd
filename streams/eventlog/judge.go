package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Judge decides which messages of an event or reminder stream count. Every reader of the log uses it, so that all of them
// see the same log. It reads in the order of the stream, without gaps, and is used by one goroutine.
//
//	in the skip list, with this hash            ErrSkipped, whatever it is
//	valid seal                                  ours: read, or ErrNewerFormat, or ErrUnreadable
//	no valid seal, sealing has begun            ErrForeign, whatever its headers are
//	no valid seal, sealing has not begun yet    format 1 with valid headers that continue where the one before ended: ours
//	                                            anything else: ErrForeign, a higher format included
//
// A reader without the key accepts everything that has the form of a seal.
type Judge struct {
	key    *seal.Key
	stream string
	parse  parser
	skips  Skips
	from   uint64 // where sealing began; 0 = it has not, as far as was read
	next   uint64 // the first command of the next event message; 0 = not known
}

// Judge returns a Judge for reading from the first message. It reads the skip list.
func (s Stream) Judge(ctx context.Context) (*Judge, error) {
	skips, err := s.skips(ctx)
	if err != nil {
		return nil, err
	}
	return s.judge(skips), nil
}

// JudgeEvents returns a Judge of a lane's events without a skip list or a connection, for messages from another source.
func JudgeEvents(log topology.Log, lane int) *Judge { return Events(nil, lane).In(log).judge(nil) }

// JudgeFrom returns a Judge of a stream that this process cannot read: where sealing began, 0 = it has not, and the skip
// list are known from another one.
func (s Stream) JudgeFrom(sealedFrom uint64, skips Skips) *Judge {
	s.sealedFrom = max(s.sealedFrom, sealedFrom)
	return s.judge(skips)
}

func (s Stream) judge(skips Skips) *Judge {
	return &Judge{key: s.key, stream: s.name, parse: s.parse, skips: skips, from: s.sealedFrom, next: 1}
}

// Behind makes the judge continue after a message that was read before, at any position.
func (j *Judge) Behind(raw *Raw) {
	from := j.from
	if _, err := j.Read(raw); err != nil {
		j.from, j.next = from, 0
	}
}

// Single judges one message, out of order. The stream should be Settled; otherwise it knows only what was read.
func (j *Judge) Single(raw *Raw) (Message, error) {
	from := j.from
	j.next = 0
	m, err := j.Read(raw)
	j.from, j.next = from, 0
	return m, err
}

// SealedFrom returns the sequence of the first sealed message, as far as was read. 0 = there is none.
func (j *Judge) SealedFrom() uint64 { return j.from }

// Read judges a message.
func (j *Judge) Read(raw *Raw) (Message, error) {
	if j.skipped(raw) {
		return Message{}, fmt.Errorf("%w: message %d", ErrSkipped, raw.Sequence)
	}
	m, err := j.parse(raw.Header, raw.Data, raw.Sequence, raw.Time)
	switch {
	case sealedBy(j.key, j.stream, raw):
		return j.ours(raw, m, err)
	case j.from != 0 && raw.Sequence >= j.from:
		return Message{}, fmt.Errorf("%w: message %d has no valid seal, and sealing began with message %d", ErrForeign, raw.Sequence, j.from)
	case errors.Is(err, ErrForeign):
		return Message{}, err
	case err != nil, m.SealedFrom != 0:
		return Message{}, fmt.Errorf("%w: message %d has format %s, in which all messages are sealed, and no valid seal", ErrForeign, raw.Sequence, raw.Header.Get(topology.HeaderFormat))
	case j.next != 0 && m.Commands[0] != 0 && m.Rebase == 0 && m.Commands[0] != j.next:
		// The fence rejects a publish after a message that its owner does not know, so no owner wrote this one.
		return Message{}, fmt.Errorf("%w: message %d covers commands from %d, the ones before it up to %d", ErrForeign, raw.Sequence, m.Commands[0], j.next-1)
	}
	j.next = m.Next()
	return m, nil
}

// ours handles a message that is sealed, or looks so to a reader without the key. m and err are the result of parsing it.
func (j *Judge) ours(raw *Raw, m Message, err error) (Message, error) {
	switch {
	case errors.Is(err, ErrNewerFormat):
		return Message{}, j.stop(raw, err)
	case err == nil && m.SealedFrom == 0:
		err = fmt.Errorf("%w: message %d is sealed and of format 1, which has no seals", ErrForeign, raw.Sequence)
	}
	if err != nil && j.key != nil {
		return Message{}, j.stop(raw, fmt.Errorf("%w: message %d: %s", ErrUnreadable, raw.Sequence, strings.TrimPrefix(err.Error(), ErrForeign.Error()+": ")))
	}
	if err != nil {
		return Message{}, err
	}
	j.from, j.next = m.SealedFrom, m.Next()
	return m, nil
}

func (j *Judge) stop(raw *Raw, why error) error {
	return &StopError{Stream: j.stream, Sequence: raw.Sequence, Hash: Hash(raw.Header, raw.Data), Err: why}
}

// Skips returns the skip list, not to be changed.
func (j *Judge) Skips() Skips { return j.skips }

// PassOver replaces the skip list: see AwaitSkip.
func (j *Judge) PassOver(skips Skips) { j.skips = skips }

func (j *Judge) skipped(raw *Raw) bool {
	hashes := j.skips[raw.Sequence]
	return len(hashes) > 0 && slices.Contains(hashes, Hash(raw.Header, raw.Data))
}

// Lookup is Get for a message that counts, out of order: a foreign or skipped one is an error.
func (s Stream) Lookup(ctx context.Context, sequence uint64) (Raw, error) {
	raw, err := s.Get(ctx, sequence)
	if err != nil {
		return Raw{}, err
	}
	j, err := s.Judge(ctx)
	if err != nil {
		return Raw{}, err
	}
	if _, err := j.Single(&raw); err != nil {
		return Raw{}, err
	}
	return raw, nil
}

// sealed reports whether a message of the stream carries a valid seal.
func (s Stream) sealed(raw *Raw) bool { return sealedBy(s.key, s.name, raw) }

func sealedBy(key *seal.Key, stream string, raw *Raw) bool {
	if key == nil {
		format, _ := parseNumber(raw.Header.Get(topology.HeaderFormat))
		return seal.WellFormed(raw.Header) && format > topology.FormatUnsealed
	}
	return raw.Header.Get(topology.HeaderSeal) != "" && key.Valid(stream, raw.Sequence, raw.Header, raw.Data)
}

// Sealer writes the headers of one stream's messages. The zero Sealer writes unsealed ones.
type Sealer struct {
	key    *seal.Key
	stream string
}

// Sealer returns the stream's sealer, see In.
func (s Stream) Sealer() Sealer { return Sealer{s.key, s.name} }

// EventSealer returns the sealer of a lane's events.
func EventSealer(log topology.Log, lane int) Sealer {
	return Sealer{log.Seal, topology.EvtStream(lane)}
}

// Seals reports whether it has a key.
func (s Sealer) Seals() bool { return s.key != nil }

// Encode writes the headers of a message for a sequence. Sealing began at from; 0 = it begins with this one.
func (s Sealer) Encode(h Header, from, sequence uint64, payload []byte) nats.Header {
	if s.key == nil {
		return h.Encode()
	}
	if h.SealedFrom = from; from == 0 {
		h.SealedFrom = sequence
	}
	out := h.Encode()
	out.Set(topology.HeaderSeal, s.key.Message(s.stream, sequence, out, payload))
	return out
}
