package push

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/optout"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

var errNoLog = errors.New("there is no log on this NATS server; `scrip serve` makes one, or connect to another server")

const (
	// startParallel is how many consumers are made at once.
	startParallel = 8
	// pullFor is how long the server keeps a pull request; pullBeat is the interval of its idle heartbeats. After twice that
	// without one the request is sent again.
	pullFor  = 30 * time.Second
	pullBeat = 2 * time.Second
	// drainFor bounds the wait at the end for a pull request in flight; a server that is unreachable does not answer it.
	drainFor = 2 * time.Second
	// requestTimeout bounds one request to the server.
	requestTimeout = 5 * time.Second
	// goneAfter is how often in a row the consumer must be missing: a cluster during an election may report it missing once.
	goneAfter    = 3
	missingPause = 300 * time.Millisecond
	// againUnacked bounds the entries of a name that wait for their next try at NATS; the others wait after them.
	againUnacked = 4096
)

// direct is a backend with the credentials of servers.
type direct struct {
	js     jetstream.JetStream
	opts   *Options
	source source
	list   *optout.List

	log     topology.Log                // of open
	kv      jetstream.KeyValue          // Bucket
	saved   map[int]uint64              // where each lane was when save recorded it; only save uses it after open
	lanes   map[int]*jetstream.Consumer // each is replaced by who pulls from it alone
	classes [classes]jetstream.Consumer
}

func newDirect(js jetstream.JetStream, opts *Options, from source) *direct {
	return &direct{js: js, opts: opts, source: from, list: optout.NewList(js)}
}

func (d *direct) optedOut(ctx context.Context, customers []string) (map[string]bool, error) {
	return d.list.Of(ctx, customers)
}

func (d *direct) close() { d.list.Close() }

func (d *direct) stream(lane int) eventlog.Stream { return d.source.stream(d.js, lane).In(d.log) }

func (d *direct) find(ctx context.Context) (err error) {
	log, found, err := topology.Inspect(ctx, d.js)
	if err == nil && !found {
		err = errNoLog
	}
	if err == nil && d.opts.SealKey != "" && log.Format <= topology.Format {
		if log, err = log.WithSealKey(d.opts.SealKey); err != nil {
			err = fmt.Errorf("SealKey: %w", err)
		}
	}
	d.log = log
	return err
}

func (d *direct) open(ctx context.Context) (o opened, err error) {
	if err := d.find(ctx); err != nil {
		return o, err
	}
	o = opened{Log: d.log.UUID, Format: d.log.Format}
	if o.Format > topology.Format {
		return o, nil // no stream of it is to be touched
	}
	if err := d.openBucket(ctx); err != nil {
		return o, err
	}
	for _, config := range []func(int) jetstream.StreamConfig{topology.PushWaitConfig, topology.PushDeadConfig} {
		if _, err := topology.FindOrMake(ctx, d.js, config); err != nil {
			return o, err
		}
	}
	d.lanes, d.saved = map[int]*jetstream.Consumer{}, map[int]uint64{}
	for lane := range d.source.lanes(d.log.Lanes) {
		o.Lanes, d.lanes[lane] = append(o.Lanes, openedLane{Lane: lane}), new(jetstream.Consumer)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(startParallel)
	for i := range o.Lanes {
		lane := o.Lanes[i].Lane
		g.Go(func() error {
			// Checked before anything is taken from the stream: each message taken and returned counts as a delivery.
			if _, err := d.stream(lane).Tail(gctx); err != nil {
				return err
			}
			judge, err := d.stream(lane).Judge(gctx)
			if err != nil {
				return err
			}
			o.Lanes[i].Skips = judge.Skips()
			*d.lanes[lane], o.Lanes[i].Used, err = d.openLane(gctx, lane)
			return err
		})
	}
	for c := range classes {
		g.Go(func() (err error) {
			d.classes[c], err = d.openClass(gctx, c)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return o, err
	}
	o.AckWait = wire.Period(d.classes[0].CachedInfo().Config.AckWait)
	all := d.classes[1:]
	for _, c := range d.lanes {
		all = append(all, *c)
	}
	for _, c := range all {
		o.AckWait = min(o.AckWait, wire.Period(c.CachedInfo().Config.AckWait))
	}
	return o, nil
}

// openLane finds the lane's consumer or makes it: for a new name where Since says, for a known one where the name was. It is
// never changed afterwards. used is when the name was used first.
func (d *direct) openLane(ctx context.Context, lane int) (consumer jetstream.Consumer, used time.Time, err error) {
	stream := d.stream(lane).Name()
	fail := func(err error) (jetstream.Consumer, time.Time, error) {
		return nil, used, fmt.Errorf("consumer %q of stream %s: %w", d.opts.Name, stream, err)
	}
	r, revision, err := readRecord(ctx, d.kv, d.opts.Name, lane)
	if err != nil {
		return nil, used, err
	}
	restored := false
	consumer, err = d.js.Consumer(ctx, stream, d.opts.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		want := d.config(d.opts.Name, d.opts.Unacked)
		want.DeliverPolicy = jetstream.DeliverNewPolicy
		switch since := d.opts.Since; {
		case revision != 0:
			if restored, err = d.resume(ctx, lane, r, &want); err != nil {
				return fail(err)
			}
		case since.all:
			want.DeliverPolicy = jetstream.DeliverAllPolicy
		case !since.at.IsZero():
			want.DeliverPolicy, want.OptStartTime = jetstream.DeliverByStartTimePolicy, &since.at
		}
		consumer, err = d.makeConsumer(ctx, stream, want)
	}
	if err != nil {
		return fail(err)
	}
	info := consumer.CachedInfo()
	if have := info.Config; have.AckPolicy != jetstream.AckExplicitPolicy || have.MaxDeliver > 0 {
		return nil, used, fmt.Errorf("stream %s has a consumer %q that is no push sender's (ack policy %s, at most %d deliveries); use another Name, or remove it",
			stream, d.opts.Name, have.AckPolicy, have.MaxDeliver)
	}
	if revision != 0 && !restored {
		return consumer, r.Used, nil
	}
	// A crash before this leaves a consumer without a record: the next start makes it from the consumer.
	err = changeRecord(ctx, d.kv, d.opts.Name, lane, func(r *record) {
		if r.Used.IsZero() {
			*r = record{Used: d.opts.Clock.Now().UTC()}
		}
		r.Log, r.Events, r.Next, r.Stored = d.log.UUID, d.source.events, info.AckFloor.Stream+1, time.Time{}
		used = r.Used
	})
	if err != nil {
		return fail(err)
	}
	return consumer, used, nil
}

// openClass finds or makes the consumer of one class. Its messages are never lost with it: the stream keeps what was not
// acknowledged.
func (d *direct) openClass(ctx context.Context, c class) (jetstream.Consumer, error) {
	name, unacked := waitConsumer(d.opts.Name, c), d.opts.Unacked
	if c == again {
		unacked = againUnacked
	}
	consumer, err := d.js.Consumer(ctx, WaitStream, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		want := d.config(name, unacked)
		want.FilterSubject = waitSubjects + d.opts.Name + "." + c.String() + ".>"
		consumer, err = d.makeConsumer(ctx, WaitStream, want)
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %q of stream %s: %w", name, WaitStream, err)
	}
	return consumer, nil
}

func (d *direct) config(name string, unacked int) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: name, Description: "a scrip push sender",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: d.opts.AckWait, MaxAckPending: unacked,
		// Tries are counted here: a server that stopped delivering would lose messages that are no dead letter yet.
		MaxDeliver: -1,
	}
}

func (d *direct) makeConsumer(ctx context.Context, stream string, want jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	consumer, err := d.js.CreateConsumer(ctx, stream, want)
	if errors.Is(err, jetstream.ErrConsumerExists) { // another process was first, with other settings
		consumer, err = d.js.Consumer(ctx, stream, want.Durable)
	}
	return consumer, err
}

// resume lets a consumer start where a name was. On a log that was restored from an older backup sequences are used again:
// then it starts with what fired after the last message that was finished.
func (d *direct) resume(ctx context.Context, lane int, r record, want *jetstream.ConsumerConfig) (restored bool, err error) {
	d.opts.Logger.WarnContext(ctx, "the push sender's consumer is gone; it is made again where the name was",
		"name", d.opts.Name, "lane", lane, "next", r.Next)
	at := r.Stored
	if r.Next > 1 && !at.IsZero() {
		before, err := d.stream(lane).Get(ctx, r.Next-1)
		switch {
		case err == nil && before.Time.Equal(at):
		case err == nil, errors.Is(err, eventlog.ErrLostTail), errors.Is(err, eventlog.ErrTrimmed):
			at = at.Add(time.Nanosecond)
			want.DeliverPolicy, want.OptStartTime = jetstream.DeliverByStartTimePolicy, &at
			return true, nil
		default:
			return false, err
		}
	}
	want.DeliverPolicy, want.OptStartSeq = jetstream.DeliverByStartSequencePolicy, max(1, r.Next)
	return false, nil
}

// consumer is where the consumer of a place is kept.
func (d *direct) consumer(at place) *jetstream.Consumer {
	if at.waits {
		return &d.classes[at.class]
	}
	return d.lanes[at.lane]
}

func (d *direct) pull(ctx context.Context, at place, take func(delivery) error) error {
	ahead := 1
	if !at.waits {
		ahead = d.source.ahead
	}
	messages, err := (*d.consumer(at)).Messages(jetstream.PullMaxMessages(ahead), jetstream.PullExpiry(pullFor), jetstream.PullHeartbeat(pullBeat))
	if err != nil {
		return fmt.Errorf("requesting messages: %w", err)
	}
	defer messages.Stop()
	patience, cancel := longer(ctx, drainFor)
	defer cancel()
	defer context.AfterFunc(ctx, messages.Drain)()
	for {
		msg, err := messages.Next(jetstream.NextContext(patience))
		if err != nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return &fatalError{fmt.Errorf("a message without JetStream metadata: %w", err)}
		}
		raw := eventlog.Raw{Subject: msg.Subject(), Header: msg.Headers(), Data: msg.Data(), Sequence: meta.Sequence.Stream, Time: meta.Timestamp}
		if err := take(delivery{raw, int(meta.NumDelivered), msg.Reply()}); err != nil {
			return &fatalError{err}
		}
	}
}

func (d *direct) mend(ctx context.Context, at place, _ error) error {
	// No heartbeat from the server, or the consumer is missing. A server that does not answer is unreachable: that is no evidence.
	info := (*d.consumer(at)).CachedInfo()
	for range goneAfter {
		short, cancel := context.WithTimeout(ctx, requestTimeout)
		_, err := d.js.Consumer(short, info.Stream, info.Name)
		cancel()
		missing := errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
		if natsx.Pause(ctx, missingPause) != nil || !missing {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var made jetstream.Consumer
	var err error
	if at.waits {
		made, err = d.openClass(ctx, at.class)
	} else {
		made, _, err = d.openLane(ctx, at.lane)
	}
	if err == nil {
		*d.consumer(at) = made
	}
	return err
}

func (d *direct) answer(token, as string, delay time.Duration) error {
	body := []byte("-NAK")
	switch {
	case as == asAck:
		body = []byte("+ACK")
	case as == asProgress:
		body = []byte("+WPI")
	case delay > 0:
		body = fmt.Appendf(body, ` {"delay": %d}`, delay.Nanoseconds())
	}
	return d.js.Conn().Publish(token, body)
}

func (d *direct) confirm(ctx context.Context, token string) error {
	_, err := d.js.Conn().RequestWithContext(ctx, token, []byte("+ACK"))
	return err
}

func (d *direct) read(ctx context.Context, lane int, sequence uint64) (eventlog.Raw, error) {
	return d.stream(lane).Get(ctx, sequence)
}

func (d *direct) awaitSkip(ctx context.Context, lane int, cause error) (eventlog.Skips, error) {
	return d.stream(lane).AwaitSkip(ctx, cause)
}
