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

// Judge says which messages of an event or reminder stream count. Every reader of the log goes through it, so that all of
// them see the same log. It is fed in the order of the stream, without gaps, and belongs to one goroutine.
//
//	told to be passed over, with this hash      ErrSkipped, whatever it is
//	valid seal                                  ours: read, or ErrNewerFormat, or ErrUnreadable
//	no valid seal, sealing has begun            ErrForeign, whatever its headers say
//	no valid seal, sealing has not begun yet    format 1 with valid headers that go on where the one before ended: ours
//	                                            anything else: ErrForeign, a higher format included
//
// A reader without the key takes whatever looks like a seal for a valid one.
type Judge struct {
	key    *seal.Key
	stream string
	parse  parser
	skips  Skips
	from   uint64 // where sealing began; 0 = it has not, as far as was read
	next   uint64 // the command that the next event message begins with; 0 = not known
}

// Judge is for who reads from the first message on. It asks which messages are to be passed over.
func (s Stream) Judge(ctx context.Context) (*Judge, error) {
	skips, err := s.skips(ctx)
	if err != nil {
		return nil, err
	}
	return s.judge(skips), nil
}

// JudgeEvents is a Judge of a lane's events that asks nobody, for who has the messages from elsewhere.
func JudgeEvents(log topology.Log, lane int) *Judge { return Events(nil, lane).In(log).judge(nil) }

func (s Stream) judge(skips Skips) *Judge {
	return &Judge{key: s.key, stream: s.name, parse: s.parse, skips: skips, from: s.sealedFrom, next: 1}
}

// Behind makes the judge go on behind a message that was read before, wherever that stands.
func (j *Judge) Behind(raw *Raw) {
	from := j.from
	if _, err := j.Read(raw); err != nil {
		j.from, j.next = from, 0
	}
}

// Single judges a message for itself, out of order. The judge is of a stream that is Settled, or sees no further than that.
func (j *Judge) Single(raw *Raw) (Message, error) {
	from := j.from
	j.next = 0
	m, err := j.Read(raw)
	j.from, j.next = from, 0
	return m, err
}

// SealedFrom is the sequence of the first sealed message, as far as was read. 0 = there is none.
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
		// The fence lets nobody write behind a message he does not know, so this is nobody's step.
		return Message{}, fmt.Errorf("%w: message %d covers commands from %d, the ones before it up to %d", ErrForeign, raw.Sequence, m.Commands[0], j.next-1)
	}
	j.next = m.Next()
	return m, nil
}

// ours deals with a message that is sealed, or looks so to who cannot check it. What came of reading it is m and err.
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

// PassOver replaces the list of messages to be passed over, for who read it again: see AwaitSkip.
func (j *Judge) PassOver(skips Skips) { j.skips = skips }

func (j *Judge) skipped(raw *Raw) bool {
	hashes := j.skips[raw.Sequence]
	return len(hashes) > 0 && slices.Contains(hashes, Hash(raw.Header, raw.Data))
}

// Lookup is Get for a message that counts, out of order: what is foreign or to be passed over is an error.
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

// sealed says whether a message of the stream carries a valid seal.
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

// Sealer is the stream's, see In.
func (s Stream) Sealer() Sealer { return Sealer{s.key, s.name} }

// EventSealer is the one of a lane's events.
func EventSealer(log topology.Log, lane int) Sealer {
	return Sealer{log.Seal, topology.EvtStream(lane)}
}

// Seals says whether it has a key.
func (s Sealer) Seals() bool { return s.key != nil }

// Encode writes the headers of a message that is to get a sequence. Sealing began at from; 0 = it begins with this one.
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
