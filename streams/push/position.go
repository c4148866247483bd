package push

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

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Bucket is the KV bucket in which push senders record how far they are, under the keys <name>.<lane>.
const Bucket = topology.PushBucket

// saveEvery is how often a process records its positions and counts. A crash loses the counts since then; positions are of
// the consumers, and those of a lost consumer repeat at most so long, under the same keys.
const saveEvery = 5 * time.Second

// record is the value of a key of Bucket.
type record struct {
	Format int    `json:"format"`
	Log    string `json:"log"`
	// Events: the lane's events are read, not its reminders.
	Events bool `json:"events,omitempty"`
	// Begun is when the name was used first.
	Begun time.Time `json:"begun"`
	// Next is the first sequence of the lane's stream that may be unfinished. All before are delivered, dead letters, or
	// entries of WaitStream. Stored is the time of the message before it, zero if there is none.
	Next   uint64    `json:"next"`
	Stored time.Time `json:"stored,omitzero"`
	// Counts since Begun, in customers; Failed in tries.
	Delivered uint64 `json:"delivered"`
	Dead      uint64 `json:"dead"`
	Failed    uint64 `json:"failed"`
	// At is when it was written last.
	At time.Time `json:"at"`
}

func bucketKey(name string, lane int) string { return name + "." + strconv.Itoa(lane) }

// positions is Bucket, opened.
type positions struct {
	js jetstream.JetStream
	kv jetstream.KeyValue
}

// openPositions finds the bucket or makes it, with as many replicas as the log has.
func openPositions(ctx context.Context, js jetstream.JetStream) (*positions, error) {
	if _, err := topology.FindOrMake(ctx, js, topology.PushConfig); err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	kv, err := js.KeyValue(ctx, Bucket)
	if err != nil {
		return nil, fmt.Errorf("push: bucket %s: %w", Bucket, err)
	}
	return &positions{js, kv}, nil
}

// read returns a record and its revision, 0 = there is none.
func (p *positions) read(ctx context.Context, name string, lane int) (r record, revision uint64, err error) {
	e, err := p.kv.Get(ctx, bucketKey(name, lane))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return r, 0, nil
	}
	if err == nil {
		revision, err = e.Revision(), json.Unmarshal(e.Value(), &r)
	}
	if err == nil && r.Format > Format {
		err = fmt.Errorf("it has format %d, this program reads up to %d; use a newer scrip", r.Format, Format)
	}
	if err != nil {
		return r, 0, fmt.Errorf("push: key %s of bucket %s: %w", bucketKey(name, lane), Bucket, err)
	}
	return r, revision, nil
}

// change reads a record, changes it and writes it, again while other processes write too.
func (p *positions) change(ctx context.Context, name string, lane int, f func(*record)) error {
	for {
		r, revision, err := p.read(ctx, name, lane)
		if err != nil {
			return err
		}
		f(&r)
		r.Format, r.At = Format, time.Now().UTC()
		data, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if revision == 0 {
			_, err = p.kv.Create(ctx, bucketKey(name, lane), data)
		} else {
			_, err = p.kv.Update(ctx, bucketKey(name, lane), data, revision)
		}
		var api *jetstream.APIError
		if errors.Is(err, jetstream.ErrKeyExists) || errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
			continue // another process wrote it
		}
		return err
	}
}

// consumer finds the lane's consumer or makes it: for a new name where Since says, for a known one where the name was. It is
// never changed afterwards.
func (p *Pusher) consumer(ctx context.Context, lane int) (jetstream.Consumer, error) {
	stream := p.source.stream(p.js, lane).Name()
	fail := func(err error) (jetstream.Consumer, error) {
		return nil, fmt.Errorf("push: consumer %q of stream %s: %w", p.opts.Name, stream, err)
	}
	r, revision, err := p.positions.read(ctx, p.opts.Name, lane)
	if err != nil {
		return nil, err
	}
	restored := false
	consumer, err := p.js.Consumer(ctx, stream, p.opts.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		want := jetstream.ConsumerConfig{
			Durable: p.opts.Name, Description: "a scrip push sender",
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: p.opts.AckWait, MaxAckPending: p.opts.Unacked,
			// Tries are counted here: a server that stopped delivering would lose messages that are no dead letter yet.
			MaxDeliver: -1, DeliverPolicy: jetstream.DeliverNewPolicy,
		}
		switch since := p.opts.Since; {
		case revision != 0:
			if restored, err = p.behind(ctx, lane, r, &want); err != nil {
				return fail(err)
			}
		case since.all:
			want.DeliverPolicy = jetstream.DeliverAllPolicy
		case !since.at.IsZero():
			want.DeliverPolicy, want.OptStartTime = jetstream.DeliverByStartTimePolicy, &since.at
		}
		consumer, err = p.js.CreateConsumer(ctx, stream, want)
		if errors.Is(err, jetstream.ErrConsumerExists) { // another process was first, with other settings
			consumer, err = p.js.Consumer(ctx, stream, p.opts.Name)
		}
	}
	if err != nil {
		return fail(err)
	}
	info := consumer.CachedInfo()
	if have := info.Config; have.AckPolicy != jetstream.AckExplicitPolicy || have.MaxDeliver > 0 {
		return nil, fmt.Errorf("push: stream %s has a consumer %q that is no push sender's (ack policy %s, at most %d deliveries); use another Name, or remove it",
			stream, p.opts.Name, have.AckPolicy, have.MaxDeliver)
	}
	if revision == 0 || restored {
		// A crash before this leaves a consumer without a record: the next start makes it from the consumer.
		err = p.positions.change(ctx, p.opts.Name, lane, func(r *record) {
			if r.Begun.IsZero() {
				*r = record{Begun: p.opts.Clock.Now().UTC()}
			}
			r.Log, r.Events, r.Next, r.Stored = p.log.UUID, p.source.events, info.AckFloor.Stream+1, time.Time{}
		})
		if err != nil {
			return fail(err)
		}
		if r, _, err = p.positions.read(ctx, p.opts.Name, lane); err != nil {
			return nil, err
		}
	}
	p.begun[lane].Store(r.Begun.UnixNano())
	return consumer, nil
}

// behind makes a consumer begin where a name was. On a log that was restored from an older backup sequences are used again:
// then it begins with what fired after the last message that was finished.
func (p *Pusher) behind(ctx context.Context, lane int, r record, want *jetstream.ConsumerConfig) (restored bool, err error) {
	p.opts.Logger.WarnContext(ctx, "the push sender's consumer is gone; it is made again where the name was", "name", p.opts.Name, "lane", lane, "next", r.Next)
	at := r.Stored
	if r.Next > 1 && !at.IsZero() {
		before, err := p.source.stream(p.js, lane).Get(ctx, r.Next-1)
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

// save records the positions and counts of all lanes, where they changed.
func (p *Pusher) save(ctx context.Context) error {
	var problems []error
	for lane := range p.counts {
		problems = append(problems, p.saveLane(ctx, lane))
	}
	return errors.Join(problems...)
}

func (p *Pusher) saveLane(ctx context.Context, lane int) error {
	c := &p.counts[lane]
	if p.proxy != nil {
		return p.proxy.save(ctx, lane, c)
	}
	consumer, err := p.js.Consumer(ctx, p.source.stream(p.js, lane).Name(), p.opts.Name)
	if err != nil {
		return err
	}
	next := consumer.CachedInfo().AckFloor.Stream + 1
	delivered, dead, failed := c.delivered.Swap(0), c.dead.Swap(0), c.failed.Swap(0)
	if next <= c.saved && delivered+dead+failed == 0 {
		return nil
	}
	var stored time.Time
	if next > 1 {
		// Without the time the position counts all the same.
		if m, err := p.source.stream(p.js, lane).Get(ctx, next-1); err == nil {
			stored = m.Time
		}
	}
	err = p.positions.change(ctx, p.opts.Name, lane, func(r *record) {
		if r.Begun.IsZero() { // the bucket was lost
			r.Begun = time.Unix(0, p.begun[lane].Load()).UTC()
		}
		r.Log, r.Events = p.log.UUID, p.source.events
		if next > r.Next {
			r.Next, r.Stored = next, stored
		}
		r.Delivered, r.Dead, r.Failed = r.Delivered+delivered, r.Dead+dead, r.Failed+failed
	})
	if err != nil {
		c.delivered.Add(delivered)
		c.dead.Add(dead)
		c.failed.Add(failed)
		return err
	}
	c.saved = next
	return nil
}

// saving records positions until ctx ends.
func (p *Pusher) saving(ctx context.Context) {
	for natsx.Pause(ctx, saveEvery) == nil {
		short, done := context.WithTimeout(ctx, requestTimeout)
		if err := p.save(short); err != nil && ctx.Err() == nil {
			p.opts.Logger.Debug("the positions were not recorded; they are later", "err", err)
		}
		done()
	}
}

// Position is how far a name is on one lane.
type Position struct {
	Name string `json:"name"`
	Lane int    `json:"lane"`
	// Delivered and Dead customers and Failed tries since the name was used first. A process that crashes loses its last
	// five seconds of them.
	Delivered uint64 `json:"delivered"`
	Dead      uint64 `json:"dead"`
	Failed    uint64 `json:"failed"`
	// Waiting is how many messages of up to 500 customers are not finished, in the stream and waiting for a call or a try.
	Waiting uint64 `json:"waiting"`
	// Oldest is when the oldest of them fired, zero = there is none.
	Oldest time.Time `json:"oldest,omitzero"`
	// Saved is when a process of the name recorded its position last.
	Saved time.Time `json:"saved"`
}

// Positions returns how far each name is on each lane, also of names of which no process runs, ordered by name and lane.
// With names it returns only theirs.
func Positions(ctx context.Context, js jetstream.JetStream, names ...string) ([]Position, error) {
	kv, err := js.KeyValue(ctx, Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil // no push sender has run yet
	}
	if err != nil {
		return nil, fmt.Errorf("push: bucket %s: %w", Bucket, err)
	}
	keys, err := kv.Keys(ctx)
	if errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("push: bucket %s: %w", Bucket, err)
	}
	slices.Sort(keys)
	p := &positions{js, kv}
	var all []Position
	for _, key := range keys {
		name, number, ok := strings.Cut(key, ".")
		lane, err := strconv.Atoi(number)
		if !ok || err != nil || checkName(name) != nil || len(names) > 0 && !slices.Contains(names, name) {
			continue // of another program, or of no interest
		}
		at, err := p.position(ctx, name, lane)
		if err != nil {
			return nil, err
		}
		all = append(all, at)
	}
	return all, nil
}

// position reads what is left of one name on one lane.
func (p *positions) position(ctx context.Context, name string, lane int) (Position, error) {
	r, _, err := p.read(ctx, name, lane)
	if err != nil {
		return Position{}, err
	}
	at := Position{Name: name, Lane: lane, Delivered: r.Delivered, Dead: r.Dead, Failed: r.Failed, Saved: r.At}
	stream := eventlog.Reminders(p.js, lane)
	if r.Events {
		stream = eventlog.Events(p.js, lane)
	}
	bounds, err := stream.Bounds(ctx)
	if err != nil {
		return at, err
	}
	next := r.Next
	if consumer, err := p.js.Consumer(ctx, stream.Name(), name); err == nil {
		next = max(next, consumer.CachedInfo().AckFloor.Stream+1)
	}
	if next <= bounds.Last {
		at.Waiting = bounds.Last - next + 1
		m, err := stream.Get(ctx, max(next, bounds.First))
		switch {
		case err == nil:
			at.Oldest = m.Time
		case !errors.Is(err, eventlog.ErrHole) && !errors.Is(err, eventlog.ErrTrimmed):
			return at, err // who replays must see what waits
		}
	}
	oldest, n, err := p.entries(ctx, name, lane)
	if err != nil {
		return at, err
	}
	at.Waiting += n
	if n > 0 && (at.Oldest.IsZero() || oldest.Before(at.Oldest)) {
		at.Oldest = oldest
	}
	return at, nil
}

// entries counts those of WaitStream, and returns when the oldest message fired that one of them refers to.
func (p *positions) entries(ctx context.Context, name string, lane int) (oldest time.Time, n uint64, err error) {
	stream, err := p.js.Stream(ctx, WaitStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return oldest, 0, nil
	}
	if err != nil {
		return oldest, 0, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(fmt.Sprintf("%s%s.*.%d.>", waitSubjects, name, lane)))
	if err != nil {
		return oldest, 0, err
	}
	for subject := range info.State.Subjects {
		_, _, id, err := parseWaitSubject(subject)
		if err != nil {
			continue
		}
		if stored := time.Unix(0, id.Stored).UTC(); n == 0 || stored.Before(oldest) {
			oldest = stored
		}
		n++
	}
	return oldest, n, nil
}
