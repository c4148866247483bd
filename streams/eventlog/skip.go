package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Skips is the skip list of a stream: sequences and hashes (see Hash).
type Skips map[uint64][]string

const skipPrefix = "skip."

// SkipKey is the key of a skip list entry in the bucket of settings. Its value is for people.
func SkipKey(stream string, sequence uint64, hash string) string {
	return fmt.Sprintf("%s%s.%d.%s", skipPrefix, stream, sequence, hash)
}

// parseSkip parses the part of a key after the stream.
func parseSkip(rest string) (sequence uint64, hash string, ok bool) {
	number, hash, _ := strings.Cut(rest, ".")
	sequence, ok = parseNumber(number)
	return sequence, hash, ok && len(hash) == 64
}

// skips reads the skip list. The keys are complete; values are not read.
func (s Stream) skips(ctx context.Context) (Skips, error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	under := "$KV." + topology.SettingsBucket + "." + skipPrefix + s.name + "."
	info, err := natsx.Info(ctx, s.js, topology.SettingsStream, under+">")
	if natsx.HasCode(err, jetstream.JSErrCodeStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the skip list of stream %s: %w", s.name, err)
	}
	var skips Skips
	for subject := range info.State.Subjects {
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

// CheckSkip checks whether a message may be added to the skip list, and returns its hash. listed is true if it is there
// already. A message that counts may not be skipped; the stream must have the key.
func (s Stream) CheckSkip(ctx context.Context, sequence uint64) (hash string, listed bool, err error) {
	if s.key == nil {
		return "", false, errors.New("only a server that has the code key can skip a message: without it seals cannot be checked")
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
	if _, err := s.JudgeWith(skips).Read(&raw); err == nil {
		return "", false, fmt.Errorf("message %d of stream %s carries scrip's seal and can be read: it stays", sequence, s.name)
	}
	return hash, false, nil
}

// skipPoll is how often AwaitSkip reads the list. Tests use a shorter time.
var skipPoll = 3 * time.Second

// StopError is the error of a reader that cannot continue: ErrNewerFormat or ErrUnreadable, and the message that caused it.
type StopError struct {
	Stream   string
	Sequence uint64
	Hash     string
	Err      error
}

func (e *StopError) Error() string { return e.Err.Error() }

func (e *StopError) Unwrap() error { return e.Err }

// AwaitSkip returns when the message that stopped a reader is in the skip list, with that list, or when ctx ends, with its
// error. It reads the list every 3 s, also while NATS is unreachable. cause is or wraps a StopError; for another error it
// returns after 3 s with the list as it is then.
func (s Stream) AwaitSkip(ctx context.Context, cause error) (Skips, error) {
	var stop *StopError
	known := errors.As(cause, &stop)
	for looked := false; ; looked = true {
		if looked || !known {
			if err := natsx.Pause(ctx, skipPoll); err != nil {
				return nil, err
			}
		}
		skips, err := s.skips(ctx)
		if err == nil && (!known || slices.Contains(skips[stop.Sequence], stop.Hash)) {
			return skips, nil
		}
	}
}
