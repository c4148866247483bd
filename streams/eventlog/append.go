package eventlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

var (
	// ErrConflict: the stream did not end where the publish expected. Definite: nothing was written by this publish.
	// Another writer has written, or an earlier publish of this one whose answer was lost. errors.As gives a *ConflictError.
	ErrConflict = errors.New("the stream has another last message")
	// ErrUnknown: no answer came, or an ambiguous one. The message may be stored, now or later: Resolve.
	ErrUnknown = errors.New("it is not known whether the message was written")
	// ErrNotDurable: the server cannot store now (disk or limit full, overloaded). Pause, then Resolve as for ErrUnknown: a
	// disk that fills up may fail after the write.
	ErrNotDurable = errors.New("the server cannot store the message now")
	// ErrTooLarge: the message is beyond the server's or the stream's limit. Definite; a retry is useless.
	ErrTooLarge = errors.New("the message is too large for the stream")
)

// ConflictError is an ErrConflict with its numbers.
type ConflictError struct {
	Stream           string
	Expected, Actual uint64
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("stream %s: expected last sequence %d, it is %d", e.Stream, e.Expected, e.Actual)
}

// Is makes it an ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// DefaultAckWait is how long an acknowledgement is waited for: longer than a leader election.
const DefaultAckWait = 5 * time.Second

// Appender publishes to a stream with one writer. Every publish carries the fence: the sequence it expects to be the
// stream's last. It does not retry by itself.
//
// It is used by one goroutine; publishes reach the server in the order of the calls.
type Appender struct {
	stream  Stream
	ackWait time.Duration
	nc      *nats.Conn
	sub     *nats.Subscription
	inbox   string // of acknowledgements, followed by a number per publish
	status  chan nats.Status
	ended   sync.WaitGroup

	mu      sync.Mutex
	last    uint64
	waiting map[string]*Pending // by reply subject
	closed  bool
}

// NewAppender subscribes to an inbox of its own. ackWait 0 is DefaultAckWait. The caller closes it.
func (s Stream) NewAppender(ackWait time.Duration) (*Appender, error) {
	if ackWait == 0 {
		ackWait = DefaultAckWait
	}
	a := &Appender{stream: s, ackWait: ackWait, nc: s.js.Conn(), waiting: map[string]*Pending{}}
	a.inbox = a.nc.NewInbox()
	sub, err := a.nc.Subscribe(a.inbox+".*", a.answered)
	if err != nil {
		return nil, fmt.Errorf("preparing to write to stream %s: %w", s.name, err)
	}
	a.sub = sub
	a.status = a.nc.StatusChanged(nats.CONNECTED)
	a.ended.Go(a.watch)
	return a, nil
}

// watch settles, after a reconnect, the publishes in flight: their acknowledgements were lost with the connection. A publish
// that nats.go buffered and sends only now is settled as well; Resolve finds its result.
func (a *Appender) watch() {
	for range a.status { // closed by Close
		a.mu.Lock()
		left := slices.Collect(maps.Keys(a.waiting))
		a.mu.Unlock()
		for _, reply := range left {
			a.settle(reply, 0, fmt.Errorf("stream %s: reconnected before the acknowledgement: %w", a.stream.name, ErrUnknown))
		}
	}
}

// Pending is a publish in flight.
type Pending struct {
	// Attempt is what was published, for Resolve and for another publish of the same bytes.
	Attempt Attempt

	done     chan struct{}
	timer    *time.Timer
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
func (a *Appender) PublishAsync(attempt Attempt) *Pending {
	p := &Pending{Attempt: attempt, done: make(chan struct{})}
	msg := &nats.Msg{Subject: a.stream.subject, Header: nats.Header{}, Data: attempt.Payload}
	for name, values := range attempt.Header {
		msg.Header[name] = values
	}
	msg.Header.Set(jetstream.ExpectedStreamHeader, a.stream.name)
	msg.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(attempt.Expected, 10))

	if attempt.ID != "" {
		msg.Header.Set(jetstream.MsgIDHeader, attempt.ID)
	}
	if attempt.After != "" {
		msg.Header.Set(jetstream.ExpectedLastMsgIDHeader, attempt.After)
	}

	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		p.finish(0, fmt.Errorf("stream %s: appender closed before publishing: %w", a.stream.name, ErrUnknown))
		return p
	}
	a.last++
	msg.Reply = a.inbox + "." + strconv.FormatUint(a.last, 10)
	a.waiting[msg.Reply] = p
	wait := cmp.Or(attempt.Wait, a.ackWait)
	p.timer = time.AfterFunc(wait, func() {
		a.settle(msg.Reply, 0, fmt.Errorf("stream %s: no acknowledgement within %s: %w", a.stream.name, wait, ErrUnknown))
	})
	a.mu.Unlock()

	// After a crash or an error from here on the message may be stored or not; the fence ensures that it is stored at most
	// once and only directly after Expected.
	if err := a.nc.PublishMsg(msg); err != nil {
		a.settle(msg.Reply, 0, a.notSent(err))
	}
	return p
}

func (a *Appender) notSent(err error) error {
	if errors.Is(err, nats.ErrMaxPayload) {
		return fmt.Errorf("stream %s: %w: %w", a.stream.name, ErrTooLarge, err)
	}
	return fmt.Errorf("stream %s: %w: %w", a.stream.name, ErrUnknown, err)
}

// answered handles an acknowledgement.
func (a *Appender) answered(msg *nats.Msg) {
	sequence, err := a.classify(msg)
	a.settle(msg.Subject, sequence, err)
}

func (a *Appender) settle(reply string, sequence uint64, err error) {
	a.mu.Lock()
	p := a.waiting[reply]
	delete(a.waiting, reply)
	a.mu.Unlock()
	if p == nil {
		return // answered after the wait: the caller resolves already
	}
	var conflict *ConflictError
	if errors.As(err, &conflict) {
		conflict.Expected = p.Attempt.Expected
	}
	p.finish(sequence, err)
}

func (p *Pending) finish(sequence uint64, err error) {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.sequence, p.err = sequence, err
	close(p.done)
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

// classify turns an answer into a sequence or one of the kinds of error.
func (a *Appender) classify(msg *nats.Msg) (uint64, error) {
	name := a.stream.name
	if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
		return 0, fmt.Errorf("stream %s: %w: %w", name, ErrUnknown, nats.ErrNoResponders)
	}
	var ack struct {
		natsx.Answer
		Stream   string `json:"stream"`
		Sequence uint64 `json:"seq"`
	}
	if err := json.Unmarshal(msg.Data, &ack); err != nil {
		return 0, fmt.Errorf("stream %s: %w: acknowledgement %q: %w", name, ErrUnknown, msg.Data, err)
	}
	if ack.Error == nil {
		if ack.Stream != name || ack.Sequence == 0 {
			return 0, fmt.Errorf("stream %s: %w: acknowledgement %q", name, ErrUnknown, msg.Data)
		}
		return ack.Sequence, nil
	}
	switch ack.Error.ErrorCode {
	case codeWrongSequence:
		_, number, _ := strings.Cut(ack.Error.Description, ": ")
		if actual, ok := parseNumber(number); ok {
			return 0, &ConflictError{Stream: name, Actual: actual}
		}
	case codeWrongID:
		return 0, fmt.Errorf("stream %s: %w: %w", name, ErrConflict, ack.Error)
	case codeStoreFailed, codeNoResources, codeNoStorage, codeTooMany:
		return 0, fmt.Errorf("stream %s: %w: %w", name, ErrNotDurable, ack.Error)
	case codeTooLarge:
		return 0, fmt.Errorf("stream %s: %w: %w", name, ErrTooLarge, ack.Error)
	}
	return 0, fmt.Errorf("stream %s: %w: %w", name, ErrUnknown, ack.Error)
}

// Close stops listening. Publishes still in flight end as ErrUnknown.
func (a *Appender) Close() {
	_ = a.sub.Unsubscribe()
	a.nc.RemoveStatusListener(a.status)
	a.ended.Wait()
	a.mu.Lock()
	left := a.waiting
	a.waiting, a.closed = nil, true
	a.mu.Unlock()
	for _, p := range left {
		p.finish(0, fmt.Errorf("stream %s: appender closed: %w", a.stream.name, ErrUnknown))
	}
}
