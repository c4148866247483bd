package lease

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// updatesAhead is how many updates wait for Run before the server is throttled.
const updatesAhead = 256

// watcher reports what a group's keys hold and every change of it, until there is trouble; then it must be replaced.
type watcher struct {
	updates <-chan update
	trouble <-chan error       // one token
	status  <-chan nats.Status // of the connection: a reconnect may have lost an update
	// stop ends the watcher.
	stop func()
}

// natsWatcher fills a watcher. (nats.go's own cannot be stopped while its channel is not read, and its creation has no
// timeout.)
type natsWatcher struct {
	updates chan update
	trouble chan error
	quit    chan struct{}
}

func (s natsStore) watch(ctx context.Context, group string) (*watcher, error) {
	consumer, err := s.js.CreateConsumer(ctx, bucketStream, jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
		FilterSubjects:    []string{bucketSubject + leasePrefix + group + ".*", bucketSubject + serverPrefix + group + ".*"},
		AckPolicy:         jetstream.AckNonePolicy,
		MaxDeliver:        1,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: time.Minute,
	})
	if err != nil {
		return nil, err
	}
	w := natsWatcher{updates: make(chan update, updatesAhead), trouble: make(chan error, 1), quit: make(chan struct{})}
	if consumer.CachedInfo().NumPending == 0 {
		w.updates <- update{complete: true}
	}
	consume, err := consumer.Consume(w.receive,
		jetstream.PullExpiry(30*time.Second), jetstream.PullHeartbeat(2*time.Second),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { w.signal(err) }))
	if err != nil {
		return nil, err
	}
	nc, name := s.js.Conn(), consumer.CachedInfo().Name
	status := nc.StatusChanged(nats.CONNECTED)
	return &watcher{updates: w.updates, trouble: w.trouble, status: status, stop: func() {
		close(w.quit)
		nc.RemoveStatusListener(status)
		consume.Stop()
		<-consume.Closed()
		_ = nc.Publish("$JS.API.CONSUMER.DELETE."+bucketStream+"."+name, nil) // without waiting for the answer
	}}, nil
}

func (w natsWatcher) signal(err error) {
	select {
	case w.trouble <- err:
	default:
	}
}

func (w natsWatcher) receive(msg jetstream.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		w.signal(err)
		return
	}
	u := update{
		key:      strings.TrimPrefix(msg.Subject(), bucketSubject),
		value:    msg.Data(),
		revision: meta.Sequence.Stream,
		stored:   meta.Timestamp,
		complete: meta.NumPending == 0,
	}
	u.mark(msg.Headers())
	select {
	case w.updates <- u:
	case <-w.quit:
	}
}
