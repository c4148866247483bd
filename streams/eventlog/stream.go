package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

var (
	// ErrLostTail: the stream ends before the requested position. Messages were lost, or an older copy was restored.
	ErrLostTail = errors.New("the stream ends before this position")
	// ErrDiverged: another message is stored at the requested position, or the position is of another log.
	ErrDiverged = errors.New("the stream holds another message at this position")
	// ErrTrimmed: the stream starts after the requested position.
	ErrTrimmed = errors.New("the stream starts after this position")
	// ErrHole: the message is missing within the stream, which no operation of scrip can cause.
	ErrHole = errors.New("the message is missing from the stream")
)

// readFor bounds a read from a server that does not answer, unless the context ends earlier: longer than nats-server takes
// to elect a leader (4 to 9 s).
const readFor = 12 * time.Second

// Stream is one stream of a lane, or that of the settings. It is a value without resources.
type Stream struct {
	js      jetstream.JetStream
	name    string
	subject string // the one its writer publishes to; empty for commands
	parse   parser
	sparse  bool      // messages may be missing
	log     string    // UUID, if known
	key     *seal.Key // nil = this reader cannot check seals
	narrow  bool      // feeds read little ahead
}

// parser is Parse or ParseReminder.
type parser func(h nats.Header, payload []byte, sequence uint64, stored time.Time) (Message, error)

// Events returns a lane's event stream.
func Events(js jetstream.JetStream, lane int) Stream {
	return Stream{js: js, name: topology.EvtStream(lane), subject: topology.Evt(lane), parse: Parse}
}

// Reminders returns a lane's stream of fired reminders.
func Reminders(js jetstream.JetStream, lane int) Stream {
	return Stream{js: js, name: topology.RmdStream(lane), subject: topology.Rmd(lane), parse: ParseReminder}
}

// Out returns the stream of reminders that were held back.
func Out(js jetstream.JetStream) Stream {
	return Stream{js: js, name: topology.PushOutStream, subject: topology.PushOut, parse: parseCommon}
}

// Commands returns a lane's command stream. It has many writers and no message format of its own: only Name, Bounds, Get
// and OpenFeed apply to it.
func Commands(js jetstream.JetStream, lane int) Stream {
	return Stream{js: js, name: topology.CmdStream(lane)}
}

// Bucket returns the stream below a growing bucket. It has many writers and no message format of its own: only Name, Bounds,
// Get and OpenFeed apply to it. If another program made the bucket, messages may be missing: the feed passes over such gaps.
func Bucket(js jetstream.JetStream, stream string) Stream {
	return Stream{js: js, name: stream, sparse: true}
}

// In returns the stream as part of a log: with the key to its seals, if the log has one.
func (s Stream) In(log topology.Log) Stream {
	s.log, s.key = log.UUID, log.Seal
	return s
}

// Narrow returns the stream with feeds that hold a sixth of the usual bytes, some 4 MiB, for programs with many feeds at once. Each
// reads at a lower rate if the server is far away.
func (s Stream) Narrow() Stream {
	s.narrow = true
	return s
}

// feedBytes bounds a pull request of a feed, and its queue.
func (s Stream) feedBytes() int {
	if s.narrow {
		return narrowBytes
	}
	return feedBytes
}

// Name returns the stream's name.
func (s Stream) Name() string { return s.name }

// Raw is a message as the stream holds it.
type Raw = natsx.Message

// Bounds is where a stream starts and ends.
type Bounds struct {
	First, Last uint64 // sequences; an empty stream has Last = First-1, or both 0 if nothing was ever in it
	Messages    uint64
	Bytes       uint64
	MaxBytes    int64 // -1 = unlimited
	// Replicated: the stream has more than one copy. A leader that was cut off may then answer for up to 10 s without
	// knowing of its successor; on one copy an answer is always valid.
	Replicated bool
	Leader     string // name of the node that leads the stream; "" without a cluster
}

// Bounds reads them from the stream's leader. While there is none, each replica answers from its own copy, which may lag:
// those answers are ignored. Fails after 12 s without an answer, [natsx.Transient] is true then.
func (s Stream) Bounds(ctx context.Context) (Bounds, error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	info, err := natsx.Info(ctx, s.js, s.name, "")
	if err != nil {
		return Bounds{}, fmt.Errorf("reading where stream %s ends: %w", s.name, err)
	}
	bounds := Bounds{
		First: info.State.FirstSeq, Last: info.State.LastSeq, Messages: info.State.Msgs, Bytes: info.State.Bytes,
		MaxBytes: info.Config.MaxBytes, Replicated: info.Config.Replicas > 1,
	}
	if info.Cluster != nil {
		bounds.Leader = info.Cluster.Leader
	}
	return bounds, nil
}

// Get reads one message from the stream's leader (a direct get may be answered by a replica that lags, and decisions depend
// on this one). Errors: ErrLostTail, ErrTrimmed, ErrHole.
func (s Stream) Get(ctx context.Context, sequence uint64) (Raw, error) {
	raw, err := s.get(ctx, sequence)
	if !isNotFound(err) {
		return raw, err
	}
	bounds, err := s.Bounds(ctx)
	switch {
	case err != nil:
		return Raw{}, err
	case sequence > bounds.Last:
		return Raw{}, fmt.Errorf("message %d of stream %s, which ends at %d: %w", sequence, s.name, bounds.Last, ErrLostTail)
	case sequence < bounds.First:
		return Raw{}, fmt.Errorf("message %d of stream %s, which starts at %d: %w", sequence, s.name, bounds.First, ErrTrimmed)
	}
	// The log may have been restored between the two answers; the bounds are then of another stream than the first one.
	if raw, err = s.get(ctx, sequence); !isNotFound(err) {
		return raw, err
	}
	return Raw{}, fmt.Errorf("message %d of stream %s: %w", sequence, s.name, ErrHole)
}

func isNotFound(err error) bool {
	return natsx.HasCode(err, jetstream.JSErrCodeMessageNotFound)
}

func (s Stream) get(ctx context.Context, sequence uint64) (Raw, error) {
	if sequence == 0 {
		return Raw{}, fmt.Errorf("message 0 of stream %s: %w", s.name, ErrTrimmed)
	}
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	raw, err := natsx.GetMessage(ctx, s.js, s.name, fmt.Appendf(nil, `{"seq":%d}`, sequence))
	if err != nil {
		return Raw{}, fmt.Errorf("reading message %d of stream %s: %w", sequence, s.name, err)
	}
	return raw, nil
}

// Position returns the position of a message in a log's lane; sequence 0 is the start. Errors are those of Get.
func (s Stream) Position(ctx context.Context, log string, lane int, sequence uint64) (Position, error) {
	at := Position{Log: log, Lane: lane, Sequence: sequence}
	if sequence == 0 {
		return at, nil
	}
	raw, err := s.Get(ctx, sequence)
	if err == nil {
		at.Digest = Digest(raw.Header, raw.Data)
	}
	return at, err
}

// Verify checks that a recorded position is still valid in this log. Sequence zero always is, in its own log. Errors:
// ErrLostTail, ErrDiverged, ErrTrimmed, ErrHole: what was recorded with the position is of no use then.
func (s Stream) Verify(ctx context.Context, log string, pos Position) error {
	if pos.Log != log {
		return fmt.Errorf("position %d of log %s, this is log %s: %w", pos.Sequence, pos.Log, log, ErrDiverged)
	}
	if pos.Sequence == 0 {
		return nil
	}
	raw, err := s.Get(ctx, pos.Sequence)
	if err != nil {
		return err
	}
	if digest := Digest(raw.Header, raw.Data); digest != pos.Digest {
		return fmt.Errorf("message %d of stream %s has digest %s, recorded was %s: %w", pos.Sequence, s.name, digest, pos.Digest, ErrDiverged)
	}
	return nil
}
