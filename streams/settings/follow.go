package settings

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// heartbeat is the interval of idle heartbeats. Two missed ones are trouble.
	heartbeat = time.Second
	// changesAhead is how many changes wait for their reader before the server is throttled.
	changesAhead = 256
)

// follower delivers all changes from the first, in the order of revisions, then each new one, until there is trouble; then
// it must be replaced. (nats.go's own watcher cannot be stopped while its channel is not read, and does not report a lost
// consumer.)
type follower struct {
	changes chan Change
	trouble chan error // one token
	// until is the revision of the newest change at the start. A replica of the bucket that lags may have less for a while,
	// so a reader that has seen fewer has not seen all.
	until uint64
	// grows reports whether the bucket keeps all messages.
	grows bool

	quit     chan struct{}
	consume  jetstream.ConsumeContext
	js       jetstream.JetStream
	status   chan nats.Status
	name     string
	received uint64 // owned by receive
}

// follow starts a follower, within attempt. The error is [jetstream.ErrStreamNotFound] where there is no bucket.
func follow(ctx context.Context, js jetstream.JetStream) (*follower, error) {
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	stream, err := js.Stream(ctx, Stream)
	if err != nil {
		return nil, err
	}
	until, err := lastRevision(ctx, js)
	if err != nil {
		return nil, err
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverAllPolicy,
		FilterSubject:     subjectPrefix + keyPrefix + ">",
		AckPolicy:         jetstream.AckNonePolicy,
		MaxDeliver:        1,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: time.Minute,
	})
	if err != nil {
		return nil, err
	}
	f := &follower{
		changes: make(chan Change, changesAhead), trouble: make(chan error, 1), until: until, grows: growsOnly(stream.CachedInfo().Config),
		quit: make(chan struct{}), js: js, name: consumer.CachedInfo().Name,
	}
	f.consume, err = consumer.Consume(f.receive,
		jetstream.PullExpiry(30*time.Second), jetstream.PullHeartbeat(heartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { f.signal(err) }))
	if err != nil {
		return nil, err
	}
	f.status = js.Conn().StatusChanged(nats.CONNECTED) // a reconnect may have lost a change
	return f, nil
}

func (f *follower) signal(err error) {
	select {
	case f.trouble <- err:
	default:
	}
}

var errGap = errors.New("a change was lost in transit")

func (f *follower) receive(msg jetstream.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		f.signal(err)
		return
	}
	if f.received++; meta.Sequence.Consumer != f.received {
		f.signal(errGap)
		return
	}
	h := msg.Headers()
	c := parse(strings.TrimPrefix(msg.Subject(), subjectPrefix), msg.Data(), h.Get("KV-Operation") != "" || h.Get(jetstream.MarkerReasonHeader) != "")
	c.Revision = meta.Sequence.Stream
	select {
	case f.changes <- c:
	case <-f.quit:
	}
}

// stop ends it. The request to delete the consumer is sent without waiting for its answer.
func (f *follower) stop() {
	close(f.quit)
	f.js.Conn().RemoveStatusListener(f.status)
	f.consume.Stop()
	<-f.consume.Closed()
	_ = f.js.Conn().Publish(topology.API(f.js, "CONSUMER.DELETE."+Stream+"."+f.name), nil)
}
