package topology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/seal"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// identityKey is the key in StateBucket that holds the log's identity.
const (
	identityKey     = "log"
	identitySubject = "$KV." + StateBucket + "." + identityKey
)

// Log is the log as it is on the server.
type Log struct {
	// UUID names this log, for ever. Every recorded position carries it.
	UUID string
	// Lanes is the number of lanes, for ever.
	Lanes int
	// KeyFingerprint names the code key the log was created with.
	KeyFingerprint string
	// Format is the log format its creator wrote.
	Format int
	// Seal makes and checks the seals of messages and snapshots. Nil = this process does not have the key: it accepts
	// everything that has the form of a seal. Neither Ensure nor Inspect sets it; WithKey and WithSealKey do.
	Seal *seal.Key
	// Created is when the log was created, by its creator's clock, in whole seconds.
	Created time.Time
	// Drift lists, for people, how streams and buckets differ from the spec. Nothing of it is repaired silently. Set by
	// Ensure only.
	Drift []string
}

// WithKey returns the log with the keys derived from its code key.
func (l Log) WithKey(codeKey [32]byte) Log {
	l.Seal = seal.Derive(codeKey, l.UUID)
	return l
}

// WithSealKey returns the log with its seal key alone, as [seal.Text] writes it: seals are checked, no code can be read.
// Errors: text is no seal key, or that of another log.
func (l Log) WithSealKey(text string) (Log, error) {
	key, err := seal.Parse(text, l.UUID)
	if err != nil {
		return l, err
	}
	l.Seal = key
	return l, nil
}

// identity is what is fixed when a log is created. It is stored in StateBucket and in every stream's metadata.
type identity struct {
	UUID           string    `json:"log"`
	Lanes          int       `json:"lanes"`
	KeyFingerprint string    `json:"key"`
	Format         int       `json:"format"`
	Created        time.Time `json:"created"`
	// Complete is set once every stream has existed: from then on a missing stream is a lost one.
	Complete bool `json:"complete"`
}

func (id identity) log() Log {
	return Log{UUID: id.UUID, Lanes: id.Lanes, KeyFingerprint: id.KeyFingerprint, Format: id.Format, Created: id.Created}
}

func (id identity) same(other identity) bool {
	return id.UUID == other.UUID && id.Lanes == other.Lanes && id.KeyFingerprint == other.KeyFingerprint && id.Format == other.Format
}

// ErrRefused is the kind of every error that means another log than requested, and not a server that does not answer. A
// retry does not help; the text names what does.
var ErrRefused = errors.New("log refused")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrRefused}, args...)...)
}

// check compares a log with what the caller wants of it.
func (id identity) check(spec Spec) error {
	switch {
	case id.Format > Format:
		return refuse("log %s has format %d, this program knows formats up to %d; use a newer scrip", id.UUID, id.Format, Format)
	case spec.Lanes != 0 && spec.Lanes != id.Lanes:
		return refuse("log %s has %d lanes, %d were requested; the number of lanes is fixed when a log is created: start with --lanes %d or without the flag",
			id.UUID, id.Lanes, spec.Lanes, id.Lanes)
	case spec.KeyFingerprint != "" && spec.KeyFingerprint != id.KeyFingerprint:
		return refuse("log %s was created with the code key of fingerprint %s, the key given has %s: codes would not decode; start with the key of the log's creator (its <data>/code.key, or SCRIP_CODE_KEY)",
			id.UUID, id.KeyFingerprint, spec.KeyFingerprint)
	}
	return nil
}

// identityOf reads the identity from a stream's metadata.
func identityOf(stream string, meta map[string]string) (identity, error) {
	if meta[metaLog] == "" {
		return identity{}, refuse("stream %s carries no log identity, so scrip did not make it; rename or delete it", stream)
	}
	lanes, err := strconv.Atoi(meta[metaLanes])
	if err != nil || lanes < 1 || lanes > MaxLanes {
		return identity{}, refuse("stream %s: metadata %s is %q, expected a number from 1 to %d; restore the stream's configuration", stream, metaLanes, meta[metaLanes], MaxLanes)
	}
	format, err := strconv.Atoi(meta[metaFormat])
	if err != nil || format < 1 {
		return identity{}, refuse("stream %s: metadata %s is %q, expected a number from 1; restore the stream's configuration", stream, metaFormat, meta[metaFormat])
	}
	created, _ := time.Parse(time.RFC3339, meta[metaCreated]) // informative only
	return identity{UUID: meta[metaLog], Lanes: lanes, KeyFingerprint: meta[metaKey], Format: format, Created: created}, nil
}

// Inspect reports whether a log exists, and which. It creates and changes nothing. A caller without a code key calls it first:
// only the creator of a log may make a new key.
func Inspect(ctx context.Context, js jetstream.JetStream) (log Log, found bool, err error) {
	var id identity
	err = natsx.Retry(ctx, func(ctx context.Context) error {
		if id, _, found, err = readIdentity(ctx, js); err == nil && !found {
			id, found, err = adopt(ctx, js)
		}
		return err
	})
	if err != nil {
		return Log{}, false, fmt.Errorf("checking for a log: %w", err)
	}
	return id.log(), found, nil
}

// readIdentity reads the arbiter's key from the bucket's leader. revision is that of its last change, 0 = there was none.
func readIdentity(ctx context.Context, js jetstream.JetStream) (id identity, revision uint64, found bool, err error) {
	state, err := natsx.Info(ctx, js, StateStream, "")
	switch {
	case natsx.HasCode(err, jetstream.JSErrCodeStreamNotFound):
		return identity{}, 0, false, nil
	case err != nil:
		return identity{}, 0, false, fmt.Errorf("reading bucket %s: %w", StateBucket, err)
	case state.Config.Metadata[MetaRestoring] != "":
		return identity{}, 0, false, refuse("the log is being restored from a backup, or a restore was interrupted and it is incomplete; wait for `scrip restore`, or run it again: it removes what it had made and starts again")
	}
	entry, found, err := natsx.LastMessage(ctx, js, StateStream, identitySubject)
	switch {
	case err != nil:
		return identity{}, 0, false, fmt.Errorf("reading key %q of bucket %s: %w", identityKey, StateBucket, err)
	case !found || entry.Header.Get("KV-Operation") != "": // the latter: it was deleted
		return identity{}, entry.Sequence, false, nil
	}
	if err := json.Unmarshal(entry.Data, &id); err != nil || id.UUID == "" || id.Lanes < 1 || id.Lanes > MaxLanes {
		return identity{}, 0, false, refuse("key %q of bucket %s is not a log identity: %q; delete the key, it is read again from the streams", identityKey, StateBucket, entry.Data)
	}
	return id, entry.Sequence, true, nil
}

// writeIdentity writes the arbiter's key, if its revision is still the one given. [natsx.IsWrongSequence]: it is not.
func writeIdentity(ctx context.Context, js jetstream.JetStream, id identity, revision uint64) (uint64, error) {
	value, err := json.Marshal(id)
	if err != nil {
		return 0, err
	}
	ack, err := js.Publish(ctx, identitySubject, value, jetstream.WithExpectLastSequencePerSubject(revision))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// adopt reads the identity from streams that exist although the arbiter's key does not: the bucket was lost, or the
// streams were restored without it. Such a log counts as complete, since streams are made only after the key.
func adopt(ctx context.Context, js jetstream.JetStream) (identity, bool, error) {
	lister := js.StreamNames(ctx)
	var names []string
	for name := range lister.Name() {
		if isLaneStream(name) {
			names = append(names, name)
		}
	}
	if err := lister.Err(); err != nil {
		return identity{}, false, fmt.Errorf("listing streams: %w", err)
	}
	if len(names) == 0 {
		return identity{}, false, nil
	}
	slices.Sort(names)
	stream, err := js.Stream(ctx, names[0])
	if err != nil {
		return identity{}, false, fmt.Errorf("reading stream %s: %w", names[0], err)
	}
	id, err := identityOf(names[0], stream.CachedInfo().Config.Metadata)
	id.Complete = true
	return id, err == nil, err
}

func isLaneStream(name string) bool {
	for _, prefix := range []string{CmdStreamPrefix, EvtStreamPrefix, RmdStreamPrefix} {
		if number, ok := strings.CutPrefix(name, prefix); ok {
			if _, ok := parseLane(number); ok {
				return true
			}
		}
	}
	return false
}
