package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Skips are the messages of the stream that readers are to pass over: sequences and hashes (see Hash).
type Skips map[uint64][]string

const skipPrefix = "skip."

// SkipKey is the key in the bucket of settings that tells every reader to pass over a message. Its value is for people.
func SkipKey(stream string, sequence uint64, hash string) string {
	return fmt.Sprintf("%s%s.%d.%s", skipPrefix, stream, sequence, hash)
}

// parseSkip reads what stands behind the stream in a key.
func parseSkip(rest string) (sequence uint64, hash string, ok bool) {
	number, hash, _ := strings.Cut(rest, ".")
	sequence, ok = parseNumber(number)
	return sequence, hash, ok && len(hash) == 64
}

// skips asks which messages are to be passed over. The keys say all.
func (s Stream) skips(ctx context.Context) (Skips, error) {
	type info struct {
		topology.Answer
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
	}
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	under := "$KV." + topology.ConfigBucket + "." + skipPrefix + s.name + "."
	answer, err := topology.Ask[info](ctx, s.js, "STREAM.INFO."+topology.ConfigStream, fmt.Appendf(nil, `{"subjects_filter":%q}`, under+">"))
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking which messages of stream %s are to be passed over: %w", s.name, err)
	}
	var skips Skips
	for subject := range answer.State.Subjects {
		sequence, hash, ok := parseSkip(subject[len(under):])
		if !ok {
			continue
		}
		if skips == nil {
			skips = Skips{}
		}
		skips[sequence] = append(skips[sequence], hash)
	}
	return skips, nil
}

// skipLook is how many messages behind an unsealed one are looked at for one that follows it.
const skipLook = 1000

// CheckSkip says whether readers may be told to pass over a message, and its hash. listed says that they are told already.
// What is sealed and can be read is not passed over, nor what the log goes on behind; the stream must have the key.
func (s Stream) CheckSkip(ctx context.Context, sequence uint64) (hash string, listed bool, err error) {
	if s.key == nil {
		return "", false, errors.New("a message can be passed over only by a server that has the code key: without it nobody can say whose it is")
	}
	if s, err = s.Settled(ctx); err != nil {
		return "", false, err
	}
	raw, err := s.Get(ctx, sequence)
	if err != nil {
		return "", false, err
	}
	hash = Hash(raw.Header, raw.Data)
	skips, err := s.skips(ctx)
	if err != nil {
		return "", false, err
	}
	if slices.Contains(skips[sequence], hash) {
		return hash, true, nil
	}
	j := s.judge(skips)
	m, err := j.Single(&raw)
	switch {
	case err != nil:
		return hash, false, nil
	case m.SealedFrom != 0:
		return "", false, fmt.Errorf("message %d of stream %s carries scrip's seal and can be read: it stays", sequence, s.name)
	}
	bounds, err := s.Bounds(ctx)
	if err != nil {
		return "", false, err
	}
	for seq := sequence + 1; seq <= min(bounds.Last, sequence+skipLook); seq++ {
		if raw, err = s.Get(ctx, seq); err != nil {
			return "", false, err
		}
		if next, err := j.Single(&raw); err == nil && next.Commands[0] == m.Next() {
			return "", false, fmt.Errorf("message %d of stream %s can be read, and message %d goes on where it ends: it stays", sequence, s.name, seq)
		}
	}
	return hash, false, nil
}

// skipPoll is how often AwaitSkip looks. Tests look more often.
var skipPoll = 3 * time.Second

// StopError is what a reader cannot read on behind: ErrNewerFormat or ErrUnreadable, and the message that it is about.
type StopError struct {
	Stream   string
	Sequence uint64
	Hash     string
	Err      error
}

func (e *StopError) Error() string { return e.Err.Error() }

func (e *StopError) Unwrap() error { return e.Err }

// AwaitSkip returns when the message that stopped a reader is to be passed over, with the list that says so, or when ctx
// ends, with its error. It asks every 3 s, also while NATS is away. cause is or wraps a StopError; for another error it
// returns after 3 s with what the list is then.
func (s Stream) AwaitSkip(ctx context.Context, cause error) (Skips, error) {
	var stop *StopError
	known := errors.As(cause, &stop)
	for looked := false; ; looked = true {
		if looked || !known {
			if err := topology.Pause(ctx, skipPoll); err != nil {
				return nil, err
			}
		}
		skips, err := s.skips(ctx)
		if err == nil && (!known || slices.Contains(skips[stop.Sequence], stop.Hash)) {
			return skips, nil
		}
	}
}
