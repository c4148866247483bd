package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Judge decides which messages of an event or reminder stream count. Every reader of the log uses it, so that all of them
// see the same log.
//
//	in the skip list, with this hash    ErrSkipped, whatever it is
//	valid seal                          ours: read, or ErrNewerFormat, or ErrUnreadable
//	no valid seal                       ErrForeign, whatever its headers are
//
// A reader without the key accepts everything that has the form of a seal.
type Judge struct {
	key    *seal.Key
	stream string
	parse  parser
	skips  Skips
}

// Judge returns a Judge with the skip list, which it reads.
func (s Stream) Judge(ctx context.Context) (*Judge, error) {
	skips, err := s.skips(ctx)
	if err != nil {
		return nil, err
	}
	return s.JudgeWith(skips), nil
}

// JudgeWith returns a Judge with a skip list that is known, for a process that cannot read it.
func (s Stream) JudgeWith(skips Skips) *Judge {
	return &Judge{key: s.key, stream: s.name, parse: s.parse, skips: skips}
}

// Read judges a message.
func (j *Judge) Read(raw *Raw) (Message, error) {
	switch {
	case j.skipped(raw):
		return Message{}, fmt.Errorf("%w: message %d", ErrSkipped, raw.Sequence)
	case !j.sealed(raw):
		return Message{}, fmt.Errorf("%w: message %d has no valid seal", ErrForeign, raw.Sequence)
	}
	m, err := j.parse(raw.Header, raw.Data, raw.Sequence, raw.Time)
	switch {
	case errors.Is(err, ErrNewerFormat):
		return Message{}, j.stop(raw, err)
	case err != nil && j.key != nil:
		return Message{}, j.stop(raw, fmt.Errorf("%w: message %d: %s", ErrUnreadable, raw.Sequence, strings.TrimPrefix(err.Error(), ErrForeign.Error()+": ")))
	case err != nil: // anybody can write what has the form of a seal
		return Message{}, err
	}
	return m, nil
}

func (j *Judge) sealed(raw *Raw) bool {
	if j.key == nil {
		return seal.WellFormed(raw.Header)
	}
	return raw.Header.Get(topology.HeaderSeal) != "" && j.key.Valid(j.stream, raw.Sequence, raw.Header, raw.Data)
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

// Lookup is Get for a message that counts: a foreign or skipped one is an error.
func (s Stream) Lookup(ctx context.Context, sequence uint64) (raw Raw, err error) {
	s.LookupAll(ctx, []uint64{sequence}, func(_ uint64, found Raw, why error) { raw, err = found, why })
	return raw, err
}

// LookupAll is Lookup for many messages, at a tenth of its work for each. It calls each once for each of them, in no order.
func (s Stream) LookupAll(ctx context.Context, sequences []uint64, each func(sequence uint64, raw Raw, err error)) {
	j, err := s.Judge(ctx)
	if err != nil {
		for _, sequence := range sequences {
			each(sequence, Raw{}, err)
		}
		return
	}
	natsx.GetMessages(ctx, s.js, s.name, sequences, func(sequence uint64, raw Raw, err error) {
		if err != nil {
			raw, err = s.Get(ctx, sequence) // which finds out why
		}
		if err == nil {
			_, err = j.Read(&raw)
		}
		if err != nil {
			raw = Raw{}
		}
		each(sequence, raw, err)
	})
}
