package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

var (
	// ErrConflict: the stream did not end where the publish expected. Definite: nothing was written by this publish.
	// Another writer has written, or an earlier publish of this one whose answer was lost.
	ErrConflict = errors.New("the stream has another last message")
	// ErrUnknown: no answer came, or an ambiguous one. The message may be stored, now or later: Resolve.
	ErrUnknown = errors.New("it is not known whether the message was written")
	// ErrNotDurable: the server cannot store now (disk or limit full, overloaded). Pause, then Resolve as for ErrUnknown: a
	// disk that fills up may fail after the write.
	ErrNotDurable = errors.New("the server cannot store the message now")
	// ErrTooLarge: the message is beyond the server's or the stream's limit. Definite; a retry is useless.
	ErrTooLarge = errors.New("the message is too large for the stream")
)

// ackWait is how long an acknowledgement is waited for by default: longer than a leader election.
const ackWait = 5 * time.Second

// Header is the content of a step's message, apart from its lines.
type Header struct {
	// Commands are the first and last command sequence covered. On a rebase that covers none they are (n, n-1).
	Commands [2]uint64
	// CommandTime is the stored timestamp of the last covered command, to the microsecond. Zero if none is covered.
	CommandTime time.Time
	// LaneTime is the lane's clock after the step, to the microsecond.
	LaneTime time.Time
	// Owner is the writer's nonce.
	Owner string
	// Rebase is the command sequence the lane continues at, 0 for an ordinary step.
	Rebase uint64
	// Source, on reminder messages only, is the event line that the message expands.
	Source Source
	// SourceDigest, on reminder messages only, is the digest of the event message Source points into.
	SourceDigest string
	// Priority, on reminder messages only, is the highest of the campaigns in it: "high", "low", or "" for normal.
	Priority string
	// Hold, on reminder messages only: senders leave them to the stage that writes SCRIP_PUSH_OUT.
	Hold bool
}

// Source is the position in the event stream that a reminder message comes from.
type Source struct {
	Sequence uint64 // of the event message
	Line     int    // within it, from 1
	LastR    uint64 // the last subscription number expanded so far
}

// Encode writes the headers of an event message (or, with a Source, of a reminder message), without the seal: see
// Sealer.Encode. Times are cut to the microsecond.
func (h Header) Encode() nats.Header {
	out := nats.Header{}
	out.Set(topology.HeaderFormat, strconv.Itoa(topology.Format))
	out.Set(topology.HeaderOwner, h.Owner)
	if h.Source != (Source{}) {
		out.Set(topology.HeaderSource, fmt.Sprintf("%d:%d:%d", h.Source.Sequence, h.Source.Line, h.Source.LastR))
		out.Set(topology.HeaderSourceDigest, h.SourceDigest)
		if h.Hold {
			out.Set(topology.HeaderHold, "1")
		}
	} else if h.Commands != [2]uint64{} {
		out.Set(topology.HeaderCommands, fmt.Sprintf("%d-%d", h.Commands[0], h.Commands[1]))
	}
	if h.Priority != "" {
		out.Set(topology.HeaderPriority, h.Priority)
	}
	if !h.CommandTime.IsZero() {
		out.Set(topology.HeaderCommandTime, FormatTime(h.CommandTime))
	}
	if !h.LaneTime.IsZero() {
		out.Set(topology.HeaderTime, FormatTime(h.LaneTime))
	}
	if h.Rebase != 0 {
		out.Set(topology.HeaderRebase, strconv.FormatUint(h.Rebase, 10))
	}
	return out
}

// FormatTime writes a time in the form of headers.
func FormatTime(t time.Time) string { return t.UTC().Format(TimeLayout) }

// Sealer writes the headers of one stream's messages. It needs the log's key.
type Sealer struct {
	key    *seal.Key
	stream string
}

// Sealer returns the stream's sealer, see In.
func (s Stream) Sealer() Sealer { return Sealer{s.key, s.name} }

// Encode writes the headers of a message for a sequence, with its seal.
func (s Sealer) Encode(h Header, sequence uint64, payload []byte) nats.Header {
	out := h.Encode()
	out.Set(topology.HeaderSeal, s.key.Message(s.stream, sequence, out, payload))
	return out
}

// Appender publishes to a stream with one writer. Every publish carries the fence: the sequence it expects to be the
// stream's last. It does not retry by itself.
//
// It is used by one goroutine; publishes reach the server in the order of the calls.
type Appender struct {
	stream Stream
	wait   time.Duration
	js     jetstream.JetStream // with an inbox of its own
	life   context.Context
	end    context.CancelFunc
	waits  sync.WaitGroup // one for each publish in flight
}

// NewAppender returns an appender that waits so long for acknowledgements; 0 is 5 s. The caller closes it.
func (s Stream) NewAppender(wait time.Duration) (*Appender, error) {
	wait = cmp.Or(wait, ackWait)
	js, err := jetstream.New(s.js.Conn(), jetstream.WithPublishAsyncTimeout(wait))
	if err != nil {
		return nil, fmt.Errorf("preparing to write to stream %s: %w", s.name, err)
	}
	a := &Appender{stream: s, wait: wait, js: js}
	a.life, a.end = context.WithCancel(context.Background())
	return a, nil
}

// Pending is a publish in flight.
type Pending struct {
	// Attempt is what was published, for Resolve and for another publish of the same bytes.
	Attempt Attempt

	done     chan struct{}
	sequence uint64
	err      error
}

// Attempt is a message and the position it is meant for.
type Attempt struct {
	// Expected is the last sequence the stream was to have before it.
	Expected uint64
	// ID, if not empty, names the message; and After, if not empty, is the ID that the stream's last message must have. The
	// sequence alone does not identify the message before: of two messages in flight the first may be rejected because another
	// writer's was stored, and the second would then fit after that one. With After it does not.
	//
	// Only for streams with one copy: a replica of nats-server 2.15 that caught up does not know the ID of its last message
	// and would reject what the others accepted.
	ID, After string
	Header    nats.Header
	Payload   []byte
	// Wait, if not 0, is how long to wait for this acknowledgement instead of the appender's wait.
	Wait time.Duration
}

// Done is closed when there is a result, at the latest after the appender's wait for acknowledgements.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Result waits for the result: the sequence of the stored message, or an error of the kinds ErrConflict, ErrUnknown,
// ErrNotDurable, ErrTooLarge.
func (p *Pending) Result() (uint64, error) {
	<-p.done
	return p.sequence, p.err
}

// Publish publishes and waits for the acknowledgement, which with --sync always means: on disk. When ctx ends first the
// result is ErrUnknown.
func (a *Appender) Publish(ctx context.Context, attempt Attempt) (uint64, error) {
	p := a.PublishAsync(attempt)
	select {
	case <-p.done:
		return p.Result()
	case <-ctx.Done():
		return 0, fmt.Errorf("stream %s: %w: %w", a.stream.name, ErrUnknown, ctx.Err())
	}
}

// PublishAsync publishes and returns at once. A following publish may expect the sequence this one will get; if this one
// fails, that one fails too, unless another writer is active: see Attempt.After. The attempt's header and payload must not be
// changed until there is a result.
//
// After a crash or an error from here on the message may be stored or not; the fence ensures that it is stored at most once and
// only directly after Expected. When the connection is lost the result is ErrUnknown at once.
func (a *Appender) PublishAsync(attempt Attempt) *Pending {
	p := &Pending{Attempt: attempt, done: make(chan struct{})}
	msg := &nats.Msg{Subject: a.stream.subject, Header: nats.Header{}, Data: attempt.Payload}
	maps.Copy(msg.Header, attempt.Header)
	msg.Header.Set(jetstream.ExpectedStreamHeader, a.stream.name)
	msg.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(attempt.Expected, 10))
	if attempt.ID != "" {
		msg.Header.Set(jetstream.MsgIDHeader, attempt.ID)
	}
	if attempt.After != "" {
		msg.Header.Set(jetstream.ExpectedLastMsgIDHeader, attempt.After)
	}
	err := a.life.Err()
	var future jetstream.PubAckFuture
	if err == nil {
		future, err = a.js.PublishMsgAsync(msg, jetstream.WithRetryAttempts(0))
	}
	if err != nil {
		p.err = a.classify(err)
		close(p.done)
		return p
	}
	a.waits.Go(func() {
		defer close(p.done)
		p.sequence, p.err = a.result(future, cmp.Or(attempt.Wait, a.wait))
	})
	return p
}

// result waits for the acknowledgement.
func (a *Appender) result(future jetstream.PubAckFuture, wait time.Duration) (uint64, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case ack := <-future.Ok():
		if ack.Stream != a.stream.name || ack.Sequence == 0 {
			return 0, fmt.Errorf("stream %s: %w: acknowledgement %+v", a.stream.name, ErrUnknown, ack)
		}
		return ack.Sequence, nil
	case err := <-future.Err():
		return 0, a.classify(err)
	case <-timer.C:
		return 0, fmt.Errorf("stream %s: no acknowledgement within %s: %w", a.stream.name, wait, ErrUnknown)
	case <-a.life.Done():
		return 0, fmt.Errorf("stream %s: appender closed: %w", a.stream.name, ErrUnknown)
	}
}

// JetStream error codes of a publish.
const (
	codeStoreFailed   jetstream.ErrorCode = 10077 // also: stream full
	codeNoResources   jetstream.ErrorCode = 10023
	codeNoStorage     jetstream.ErrorCode = 10047
	codeTooMany       jetstream.ErrorCode = 10167
	codeTooLarge      jetstream.ErrorCode = 10054
	codeWrongSequence jetstream.ErrorCode = 10071 // with the actual one: definite
	codeWrongID       jetstream.ErrorCode = 10070 // the last message has another ID: definite
	// 10164 is "wrong last sequence" too, but means that some write is in flight on a replicated stream: unknown.
)

// classify gives the error of a publish its kind.
func (a *Appender) classify(err error) error {
	kind := ErrUnknown
	switch {
	case natsx.HasCode(err, codeWrongSequence, codeWrongID):
		kind = ErrConflict
	case natsx.HasCode(err, codeStoreFailed, codeNoResources, codeNoStorage, codeTooMany):
		kind = ErrNotDurable
	case natsx.HasCode(err, codeTooLarge), errors.Is(err, nats.ErrMaxPayload):
		kind = ErrTooLarge
	}
	return fmt.Errorf("stream %s: %w: %w", a.stream.name, kind, err)
}

// Close stops listening. Publishes still in flight, and later ones, end as ErrUnknown.
func (a *Appender) Close() {
	a.end()
	a.waits.Wait()
	a.js.CleanupPublisher()
}
