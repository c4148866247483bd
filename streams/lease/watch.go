package lease

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	bucketStream  = "KV_" + topology.LeaseBucket
	bucketSubject = "$KV." + topology.LeaseBucket + "."
	// updatesAhead is how many updates wait for Run before the server is throttled.
	updatesAhead = 256
)

// update is a change of one key, or its state when the watcher started.
type update struct {
	key      string // empty: there were no keys
	value    []byte
	revision uint64
	stored   time.Time // by the server's clock
	gone     bool      // deleted, or expired
	expired  bool      // expired
	complete bool      // all keys that existed when the watcher started have been seen
}

// watcher reports what a group's keys hold and every change of it, until there is trouble; then it must be replaced.
// (nats.go's own watcher cannot be stopped while its channel is not read, and its creation has no timeout.)
type watcher struct {
	updates chan update
	trouble chan error // one token
	quit    chan struct{}
	consume jetstream.ConsumeContext
	nc      *nats.Conn
	status  chan nats.Status
	name    string
}

func watch(ctx context.Context, js jetstream.JetStream, group string) (*watcher, error) {
	consumer, err := js.CreateConsumer(ctx, bucketStream, jetstream.ConsumerConfig{
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
	w := &watcher{
		updates: make(chan update, updatesAhead), trouble: make(chan error, 1), quit: make(chan struct{}),
		nc: js.Conn(), name: consumer.CachedInfo().Name,
	}
	if consumer.CachedInfo().NumPending == 0 {
		w.updates <- update{complete: true}
	}
	w.consume, err = consumer.Consume(w.receive,
		jetstream.PullExpiry(30*time.Second), jetstream.PullHeartbeat(2*time.Second),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { w.signal(err) }))
	if err != nil {
		return nil, err
	}
	w.status = w.nc.StatusChanged(nats.CONNECTED) // a reconnect may have lost an update
	return w, nil
}

func (w *watcher) signal(err error) {
	select {
	case w.trouble <- err:
	default:
	}
}

func (w *watcher) receive(msg jetstream.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		w.signal(err)
		return
	}
	h := msg.Headers()
	u := update{
		key:      strings.TrimPrefix(msg.Subject(), bucketSubject),
		value:    msg.Data(),
		revision: meta.Sequence.Stream,
		stored:   meta.Timestamp,
		// Deleted by a client; or a marker that the server left when the TTL expired.
		gone:     h.Get("KV-Operation") != "" || h.Get(jetstream.MarkerReasonHeader) != "",
		expired:  h.Get(jetstream.MarkerReasonHeader) == "MaxAge",
		complete: meta.NumPending == 0,
	}
	select {
	case w.updates <- u:
	case <-w.quit:
	}
}

// stop ends the watcher. The request to delete the consumer is sent without waiting for its answer.
func (w *watcher) stop() {
	close(w.quit)
	w.nc.RemoveStatusListener(w.status)
	w.consume.Stop()
	<-w.consume.Closed()
	_ = w.nc.Publish("$JS.API.CONSUMER.DELETE."+bucketStream+"."+w.name, nil)
}
