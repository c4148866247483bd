package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// Letters lists the dead letters that are stored now, oldest first, of one name or, if that is empty, of all. A sender with a key
// has one name. Letters removed since may be in it or not. An error ends it.
func Letters(ctx context.Context, js jetstream.JetStream, name string) iter.Seq2[DeadLetter, error] {
	if name != "" {
		if err := checkName(name); err != nil {
			return func(yield func(DeadLetter, error) bool) { yield(DeadLetter{}, err) }
		}
	}
	return newBackend(js, &Options{Name: name}, reminders()).letters(ctx)
}

func (d *direct) letters(ctx context.Context) iter.Seq2[DeadLetter, error] {
	return eachLetter(func(after uint64) (storedLetter, error) { return d.nextLetter(ctx, after) })
}

// nextLetter reads the first letter after an id.
func (d *direct) nextLetter(ctx context.Context, after uint64) (s storedLetter, err error) {
	if after == 0 {
		state, err := ReadDeadState(ctx, d.js)
		if s.Last = state.Last; err != nil {
			return s, err
		}
	}
	names := []string{d.opts.Name}
	if d.opts.Name == "" {
		names = nil
	}
	letters, _, bad, err := LettersAfter(ctx, d.js, names, after, 1)
	if err == nil && len(bad) > 0 {
		err = bad[0]
	}
	if err == nil && len(letters) > 0 {
		s.Letter, s.Message = &letters[0], &letters[0].id
	}
	return s, err
}

// eachLetter lists letters up to the last one that there is at the start: a retry writes a letter again, after it.
func eachLetter(next func(after uint64) (storedLetter, error)) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		for after, last := uint64(0), uint64(0); ; {
			s, err := next(after)
			if err != nil {
				yield(DeadLetter{}, fmt.Errorf("push: listing dead letters: %w", err))
				return
			}
			if last == 0 {
				last = s.Last
			}
			if s.Letter == nil || s.Message == nil || s.Letter.ID <= after || s.Letter.ID > last {
				return
			}
			after, s.Letter.id = s.Letter.ID, *s.Message
			if !yield(*s.Letter, nil) {
				return
			}
		}
	}
}

// DeadState changes with every dead letter that is written, changed or removed.
type DeadState struct {
	Created     time.Time // of DeadStream; zero = there is none
	Last, Count uint64    // the highest id so far, and how many there are
}

// ReadDeadState reads it.
func ReadDeadState(ctx context.Context, js jetstream.JetStream) (DeadState, error) {
	stream, err := js.Stream(ctx, DeadStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return DeadState{}, nil
	}
	if err != nil {
		return DeadState{}, fmt.Errorf("push: stream %s: %w", DeadStream, err)
	}
	info := stream.CachedInfo()
	return DeadState{Created: info.Created, Last: info.State.LastSeq, Count: info.State.Msgs}, nil
}

// LettersAfter returns the next dead letters after an id, of some names or, without any, of all, at most so many, and the id
// after which the next call continues; it is that of the call where none is left. Letters that cannot be read are in bad and
// passed over.
func LettersAfter(ctx context.Context, js jetstream.JetStream, names []string, after uint64, most int) (
	letters []DeadLetter, last uint64, bad []error, err error) {
	filters := []string{deadSubjects + ">"}
	for n, name := range names {
		filters = append(filters[:n], deadSubjects+name+".>")
	}
	last = after
	take := func(m *natsx.Message) {
		last = m.Sequence
		if l, err := readLetter(m); err != nil {
			bad = append(bad, err)
		} else {
			letters = append(letters, l)
		}
	}
	if most > 1 {
		err = eventlog.Bucket(js, DeadStream).Some(ctx, filters, after, uint64(most), take)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return letters, last, bad, fmt.Errorf("push: %w", err)
		}
	}
	for len(letters)+len(bad) < most { // those that a replica lacked, up to requests that find none
		m, err := nextLetter(ctx, js, filters, last)
		if err != nil || m.Sequence == 0 {
			return letters, last, bad, err
		}
		take(&m)
	}
	return letters, last, bad, nil
}

// nextLetter reads the first message after an id from the stream's leader, without a sequence if there is none.
func nextLetter(ctx context.Context, js jetstream.JetStream, filters []string, after uint64) (next natsx.Message, err error) {
	for _, filter := range filters {
		query, err := json.Marshal(map[string]any{"seq": after + 1, "next_by_subj": filter})
		if err != nil {
			return next, err
		}
		m, err := natsx.GetMessage(ctx, js, DeadStream, query)
		if natsx.HasCode(err, jetstream.JSErrCodeMessageNotFound, jetstream.JSErrCodeStreamNotFound) {
			continue
		}
		if err != nil {
			return next, fmt.Errorf("push: %w", err)
		}
		if next.Sequence == 0 || m.Sequence < next.Sequence {
			next = m
		}
	}
	return next, nil
}

// Message identifies the message that the letter is about, also if the letter is written again: its name, lane and sequence,
// when it was stored, and the part of it.
func (l *DeadLetter) Message() string {
	return strings.TrimPrefix(deadSubject(l.Name, l.id), deadSubjects)
}

// LetterMessages returns DeadLetter.Message of every letter there is, sorted.
func LetterMessages(ctx context.Context, js jetstream.JetStream) ([]string, error) {
	stream, err := js.Stream(ctx, DeadStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	var info *jetstream.StreamInfo
	if err == nil {
		info, err = stream.Info(ctx, jetstream.WithSubjectFilter(deadSubjects+">"))
	}
	if err != nil {
		return nil, fmt.Errorf("push: stream %s: %w", DeadStream, err)
	}
	all := slices.Sorted(maps.Keys(info.State.Subjects))
	for i, subject := range all {
		all[i] = strings.TrimPrefix(subject, deadSubjects)
	}
	return all, nil
}
