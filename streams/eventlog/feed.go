package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	// feedMessages and feedBytes bound one pull request. Two may be in flight, and the queue holds as many bytes again: some
	// 24 MiB per feed at worst.
	feedMessages = 2000
	feedBytes    = 8 << 20
	// narrowBytes is feedBytes of a narrow stream: some 4 MiB per feed at worst. A pull request must have room for the longest
	// event message, which is 1 MiB with its headers, or the server would never send that.
	narrowBytes = 5 << 18
	// feedExpires and feedHeartbeat: a consumer that was lost silently is noticed after two heartbeats.
	feedExpires   = 30 * time.Second
	feedHeartbeat = 2 * time.Second
	// feedInactive is the time after which the server drops the consumer of a reader that died.
	feedInactive = time.Minute
	// feedPause is the pause between attempts to start a consumer.
	feedPause = 100 * time.Millisecond
	// feedFirst bounds the first attempt to make a consumer. Each further one gets twice as long, up to feedShort for as long
	// as an election may last: a request sent during one is never answered. After feedPatient attempts the server counts as
	// slow, and each gets readFor.
	feedFirst   = 500 * time.Millisecond
	feedShort   = 2 * time.Second
	feedPatient = 8
	// feedPlacements bounds how often a consumer is made until NATS places it on a certain one of three nodes, which it
	// picks at random: one feed in 400,000 has to do with another node.
	feedPlacements = 32
)

// lookEvery is how often the end of the stream is checked for a feed that received nothing. Tests use a shorter time.
var lookEvery = 5 * time.Second

// GapError is the error of a stream in which a message is missing.
type GapError struct {
	Stream      string
	After, Next uint64 // the last sequence before the gap, the first after it
}

func (e *GapError) Error() string {
	return fmt.Sprintf("stream %s goes from message %d to %d: messages are missing; restore the stream from a backup", e.Stream, e.After, e.Next)
}

// Feed delivers a stream's messages in order and without gaps, from one position on, for ever.
//
//	consumer 1 ── 7 8 9 ──╳ server restarts, connection breaks, message lost in transit
//	                       └─ is 9 still the 9 delivered? ── consumer 2 ── 10 11 …
//
// Each consumer is ephemeral, in memory, without acks. Every time one is replaced, the message delivered last is read again
// and its timestamp compared: a server that restarted without its tail would otherwise store other messages under the same
// sequences, and the feed would miss them.
//
// A consumer's heartbeats prove that it lives, not that it delivers: it reads one replica's copy, which may have stopped. So
// a feed to which nothing is delivered compares itself with the stream's leader, every 5 s and on a replicated stream every
// 2 s. A consumer that lags twice in a row, half a second apart, is replaced by one that reads the leader's copy: after a
// partition NATS can take half a minute to catch a replica up. Successors that lag are replaced as well, with back-off.
type Feed struct {
	stream Stream
	log    *slog.Logger
	ready  chan struct{} // holds one token while TryBatch would return something
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	space   *sync.Cond // the queue has room, or the feed ends
	queue   []Raw
	bytes   int
	err     error
	pending uint64 // messages in the stream after the last queued one, when that arrived
	closing bool

	// Owned by the consuming side of run: one consumer at a time.
	last    uint64    // sequence delivered last
	lastAt  time.Time // its stored timestamp, zero if not known
	placeOn string    // node that the next consumer should read from; "" = any
}

// OpenFeed starts reading after message after (0 = from the first). It fails if the stream ends before it: ErrLostTail.
// The caller closes the feed. A nil logger is slog.Default.
func (s Stream) OpenFeed(ctx context.Context, after uint64, log *slog.Logger) (*Feed, error) {
	if log == nil {
		log = slog.Default()
	}
	f := &Feed{stream: s, log: log, ready: make(chan struct{}, 1), ended: make(chan struct{}), last: after}
	f.space = sync.NewCond(&f.mu)
	if err := f.checkLast(ctx); err != nil {
		return nil, fmt.Errorf("reading stream %s after %d: %w", s.name, after, err)
	}
	run, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	// The first consumer is made before Open returns, so that Lag is valid.
	g, err := f.start(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("reading stream %s after %d: %w", s.name, after, err)
	}
	go f.run(run, g)
	return f, nil
}

// Ready holds a token when TryBatch would return messages or an error. Receive from it, then call TryBatch.
func (f *Feed) Ready() <-chan struct{} { return f.ready }

// TryBatch appends to dst the messages that have arrived, at most max, without waiting. Messages that arrived before an
// error are returned before it; the error stays.
func (f *Feed) TryBatch(max int, dst []Raw) ([]Raw, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(max, len(f.queue))
	if n == 0 {
		if f.err != nil {
			f.token()
		}
		return dst, f.err
	}
	dst = append(dst, f.queue[:n]...)
	for i := range f.queue[:n] {
		f.bytes -= size(&f.queue[i])
		f.queue[i] = Raw{} // the payload is the caller's now
	}
	f.queue = f.queue[n:]
	if len(f.queue) == 0 {
		f.queue = nil
	}
	if len(f.queue) > 0 || f.err != nil {
		f.token()
	}
	f.space.Signal()
	return dst, nil
}

// Lag returns how many messages follow the one taken last, as far as known: those in the queue, and those the server
// still had when the newest of them arrived. 0 means caught up a moment ago.
func (f *Feed) Lag() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint64(len(f.queue)) + f.pending
}

// Close stops reading and waits until its goroutines have ended.
func (f *Feed) Close() {
	f.cancel()
	f.mu.Lock()
	f.closing = true
	f.space.Broadcast()
	f.mu.Unlock()
	<-f.ended
}

// token may be called with or without mu.
func (f *Feed) token() {
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

func (f *Feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.token()
}

// size is what a message costs the queue; headers are small in comparison.
func size(m *Raw) int { return len(m.Data) + 256 }

// generation is one consumer and its state.
type generation struct {
	feed     *Feed
	name     string
	consume  jetstream.ConsumeContext
	trouble  chan error // one token: replace this consumer, and why
	received uint64     // messages received from this consumer
	over     bool       // guarded by feed.mu: no message of this generation counts any more
}

// run replaces consumers until the feed is closed or fails for good.
func (f *Feed) run(ctx context.Context, g *generation) {
	defer close(f.ended)
	nc := f.stream.js.Conn()
	// A reconnect loses the messages in flight, and without new messages the gap would not be noticed.
	status := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	looks := f.newLooks(ctx)
	defer looks.end()
	for {
		select {
		case <-looks.timer.C:
			looks.start()
			continue
		case l := <-looks.done:
			if err := looks.judge(l); err != nil {
				g.signal(err)
			}
			continue
		case <-ctx.Done():
			g.end()
			f.fail(fmt.Errorf("reading stream %s: %w", f.stream.name, context.Canceled))
			return
		case s, ok := <-status:
			if ok && s == nats.CLOSED || !ok {
				g.end()
				f.fail(fmt.Errorf("reading stream %s: %w", f.stream.name, nats.ErrConnectionClosed))
				return
			}
			g.signal(errors.New("reconnected"))
			continue
		case err := <-g.trouble:
			g.end()
			var gap *GapError
			if errors.As(err, &gap) {
				f.fail(err)
				return
			}
			f.placeOn = ""
			if lag := (*lagError)(nil); errors.As(err, &lag) {
				f.placeOn = lag.bounds.Leader
			}
			f.log.Debug("reading a stream again", "stream", f.stream.name, "after", f.last, "err", err)
		}
		var err error
		if g, err = f.again(ctx); err != nil {
			f.fail(fmt.Errorf("reading stream %s after %d: %w", f.stream.name, f.last, err))
			return
		}
		looks.schedule() // the time that the new consumer took to make does not count
	}
}

// again starts a consumer after the message delivered last, and retries until the server answers. A request to a server that
// is about to stop is never answered, so the first waits are short.
func (f *Feed) again(ctx context.Context) (*generation, error) {
	for tries := 0; ; tries++ {
		err := f.checkLast(ctx)
		if err == nil {
			f.takeStatuses(ctx)
			wait := readFor
			if tries < feedPatient {
				wait = min(feedFirst<<tries, feedShort)
			}
			attempt, cancel := context.WithTimeout(ctx, wait)
			var g *generation
			g, err = f.start(attempt)
			cancel()
			if err == nil {
				return g, nil
			}
		}
		if ctx.Err() != nil {
			return nil, context.Canceled
		}
		if errors.Is(err, ErrLostTail) || errors.Is(err, ErrDiverged) || errors.Is(err, ErrTrimmed) || errors.Is(err, ErrHole) ||
			errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, err
		}
		if err := natsx.Pause(ctx, feedPause); err != nil {
			return nil, context.Canceled
		}
	}
}

// checkLast checks that the message delivered last is still stored at its sequence. One that was purged since is fine as
// long as the next one was not.
func (f *Feed) checkLast(ctx context.Context) error {
	if f.last == 0 {
		return nil
	}
	raw, err := f.stream.Get(ctx, f.last)
	if errors.Is(err, ErrTrimmed) {
		bounds, berr := f.stream.Bounds(ctx)
		if berr != nil {
			return berr
		}
		if bounds.First <= f.last+1 {
			return nil
		}
	}
	if err != nil {
		return err
	}
	if !f.lastAt.IsZero() && !raw.Time.Equal(f.lastAt) {
		return fmt.Errorf("message %d of stream %s was stored at %s, the one read before at %s: %w",
			f.last, f.stream.name, raw.Time.Format(time.RFC3339Nano), f.lastAt.Format(time.RFC3339Nano), ErrDiverged)
	}
	f.lastAt = raw.Time
	return nil
}

// takeStatuses queues the messages after the last one that no consumer delivers: nats.go takes a message without a payload
// and with a header Status for a status of the server, from any publisher. Without this one such message would stop the
// feed for ever.
func (f *Feed) takeStatuses(ctx context.Context) {
	for {
		raw, err := f.stream.get(ctx, f.last+1)
		if err != nil {
			return // it is not there, or the consumer finds out
		}
		if len(raw.Data) > 0 || raw.Header.Get("Status") == "" {
			return
		}
		f.mu.Lock()
		for f.bytes >= f.stream.feedBytes() && !f.closing {
			f.space.Wait()
		}
		if f.closing {
			f.mu.Unlock()
			return
		}
		f.put(raw)
		f.mu.Unlock()
	}
}

// put queues the next message. The caller holds mu.
func (f *Feed) put(raw Raw) {
	f.last, f.lastAt = raw.Sequence, raw.Time
	f.queue = append(f.queue, raw)
	f.bytes += size(&raw)
	f.token()
}

// start makes a consumer and starts it.
func (f *Feed) start(ctx context.Context) (*generation, error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	consumer, err := f.place(ctx)
	if err != nil {
		return nil, err
	}
	info := consumer.CachedInfo()
	g := &generation{feed: f, name: info.Name, trouble: make(chan error, 1)}
	f.mu.Lock()
	f.pending = info.NumPending
	f.mu.Unlock()
	g.consume, err = consumer.Consume(g.receive,
		jetstream.PullMaxMessagesWithBytesLimit(feedMessages, f.stream.feedBytes()),
		jetstream.PullExpiry(feedExpires), jetstream.PullHeartbeat(feedHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { g.signal(err) }))
	if err != nil {
		return nil, err
	}
	return g, nil
}

// place makes a consumer. After one that lagged it makes several, until one reads the copy of the stream's leader.
func (f *Feed) place(ctx context.Context) (jetstream.Consumer, error) {
	for tries := 1; ; tries++ {
		consumer, err := f.stream.js.CreateConsumer(ctx, f.stream.name, jetstream.ConsumerConfig{
			DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
			OptStartSeq:       f.last + 1,
			AckPolicy:         jetstream.AckNonePolicy,
			MaxDeliver:        1,
			MemoryStorage:     true,
			Replicas:          1,
			InactiveThreshold: feedInactive,
		})
		if err != nil {
			return nil, err
		}
		info := consumer.CachedInfo()
		if f.placeOn == "" || tries == feedPlacements || info.Cluster == nil || info.Cluster.Leader == f.placeOn {
			return consumer, nil
		}
		f.stream.drop(info.Name)
	}
}

func (g *generation) signal(err error) {
	select {
	case g.trouble <- err:
	default:
	}
}

// end makes sure that no message of this consumer is queued any more, and drops it.
func (g *generation) end() {
	f := g.feed
	f.mu.Lock()
	g.over = true
	f.space.Broadcast()
	f.mu.Unlock()
	g.consume.Stop()
	<-g.consume.Closed()
	f.stream.drop(g.name)
}

// receive queues a message, and waits while the queue is full. nats.go calls it for one message at a time and requests no
// more than fits, so waiting here is backpressure on the server.
func (g *generation) receive(msg jetstream.Msg) {
	f := g.feed
	meta, err := msg.Metadata()
	if err != nil {
		g.signal(err)
		return
	}
	raw := Raw{Subject: msg.Subject(), Header: msg.Headers(), Data: msg.Data(), Sequence: meta.Sequence.Stream, Time: meta.Timestamp.UTC()}

	f.mu.Lock()
	defer f.mu.Unlock()
	for f.bytes >= f.stream.feedBytes() && !g.over && !f.closing {
		f.space.Wait()
	}
	if g.over || f.closing {
		return
	}
	g.received++
	switch {
	case meta.Sequence.Consumer != g.received:
		g.over = true
		g.signal(fmt.Errorf("message %d of the consumer arrived as number %d", meta.Sequence.Consumer, g.received))
		return
	case raw.Sequence <= f.last || raw.Sequence > f.last+1 && !f.stream.sparse:
		g.over = true
		g.signal(&GapError{Stream: f.stream.name, After: f.last, Next: raw.Sequence})
		return
	}
	f.pending = meta.NumPending
	f.put(raw)
}
