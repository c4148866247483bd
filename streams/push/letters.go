package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

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

// LettersAfter returns the next dead letters behind an id, of one name or, if that is empty, of all, at most so many, and the id
// that the next call begins behind; it is that of the call where none is left. Letters that cannot be read are in bad and
// passed over.
func LettersAfter(ctx context.Context, js jetstream.JetStream, name string, after uint64, most int) (letters []DeadLetter, last uint64, bad []error, err error) {
	filter := deadSubjects + ">"
	if name != "" {
		filter = deadSubjects + name + ".>"
	}
	for last = after; len(letters)+len(bad) < most; {
		query, err := json.Marshal(map[string]any{"seq": last + 1, "next_by_subj": filter})
		if err != nil {
			return letters, last, bad, err
		}
		m, err := natsx.GetMessage(ctx, js, DeadStream, query)
		var api *jetstream.APIError
		if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeMessageNotFound || api.ErrorCode == jetstream.JSErrCodeStreamNotFound) {
			return letters, last, bad, nil
		}
		if err != nil {
			return letters, last, bad, fmt.Errorf("push: %w", err)
		}
		last = m.Sequence
		l, err := readLetter(&jetstream.RawStreamMsg{Subject: m.Subject, Sequence: m.Sequence, Header: m.Header, Data: m.Data, Time: m.Time})
		if err != nil {
			bad = append(bad, err)
			continue
		}
		letters = append(letters, l)
	}
	return letters, last, bad, nil
}

// Message identifies the message that the letter is about, also if the letter is written again: its name, lane and sequence,
// and when it was stored.
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
