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
	// Used is when the name was used first.
	Used time.Time `json:"begun"`
	// Next is the first sequence of the lane's stream that may be unfinished. All before are delivered, dead letters, or
	// entries of WaitStream. Stored is the time of the message before it, zero if there is none.
	Next   uint64    `json:"next"`
	Stored time.Time `json:"stored,omitzero"`
	// Counts since Used, in customers; Failed in tries.
	Delivered uint64 `json:"delivered"`
	Dead      uint64 `json:"dead"`
	Failed    uint64 `json:"failed"`
	OptedOut  uint64 `json:"opted_out,omitempty"`
	// At is when it was written last.
	At time.Time `json:"at"`
}

func bucketKey(name string, lane int) string { return name + "." + strconv.Itoa(lane) }

// OpenBucket finds the bucket or makes it, with as many replicas as the log has.
func OpenBucket(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
	if _, err := topology.FindOrMake(ctx, js, topology.PushConfig); err != nil {
		return nil, err
	}
	kv, err := js.KeyValue(ctx, Bucket)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", Bucket, err)
	}
	return kv, nil
}

func (d *direct) openBucket(ctx context.Context) (err error) {
	if d.kv == nil {
		d.kv, err = OpenBucket(ctx, d.js)
	}
	return err
}

// ReadKey reads what a key of the bucket has, in JSON, into a value that has its format at format. It returns the key's revision;
// 0 = there is none, and the value stays as it is. A format of a newer program is an error.
func ReadKey(ctx context.Context, kv jetstream.KeyValue, key string, value any, format *int) (revision uint64, err error) {
	e, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, nil
	}
	if err == nil {
		err = json.Unmarshal(e.Value(), value)
	}
	if err == nil && *format > Format {
		err = fmt.Errorf("it has format %d, this program reads up to %d; use a newer scrip", *format, Format)
	}
	if err != nil {
		return 0, fmt.Errorf("key %s of bucket %s: %w", key, Bucket, err)
	}
	return e.Revision(), nil
}

// readRecord returns a record and its revision, 0 = there is none.
func readRecord(ctx context.Context, kv jetstream.KeyValue, name string, lane int) (r record, revision uint64, err error) {
	revision, err = ReadKey(ctx, kv, bucketKey(name, lane), &r, &r.Format)
	return r, revision, err
}

// changeRecord reads a record, changes it and writes it, again while other processes write too.
func changeRecord(ctx context.Context, kv jetstream.KeyValue, name string, lane int, change func(*record)) error {
	for {
		r, revision, err := readRecord(ctx, kv, name, lane)
		if err != nil {
			return err
		}
		change(&r)
		r.Format, r.At = Format, time.Now().UTC()
		data, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if revision == 0 {
			_, err = kv.Create(ctx, bucketKey(name, lane), data)
		} else {
			_, err = kv.Update(ctx, bucketKey(name, lane), data, revision)
		}
		if errors.Is(err, jetstream.ErrKeyExists) || natsx.IsWrongSequence(err) {
			continue // another process wrote it
		}
		return err
	}
}

// save records nothing where neither position nor counts changed.
func (d *direct) save(ctx context.Context, n counts) error {
	consumer, err := d.js.Consumer(ctx, d.stream(n.Lane).Name(), d.opts.Name)
	if err != nil {
		return err
	}
	next, known := consumer.CachedInfo().AckFloor.Stream+1, d.saved != nil
	if known && next <= d.saved[n.Lane] && n.none() {
		return nil
	}
	err = changeRecord(ctx, d.kv, d.opts.Name, n.Lane, func(r *record) {
		if r.Used.IsZero() { // the bucket was lost
			r.Used = d.opts.Clock.Now().UTC()
		}
		r.Log, r.Events = d.log.UUID, d.source.events
		if next > r.Next {
			r.Next, r.Stored = next, time.Time{}
			// Without the time the position counts all the same.
			if m, err := d.stream(n.Lane).Get(ctx, next-1); err == nil {
				r.Stored = m.Time
			}
		}
		r.Delivered, r.Dead, r.Failed = r.Delivered+n.Delivered, r.Dead+n.Dead, r.Failed+n.Failed
		r.OptedOut += n.OptedOut
	})
	if err == nil && known {
		d.saved[n.Lane] = next
	}
	return err
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
	// OptedOut customers want no reminders, and got none.
	OptedOut uint64 `json:"opted_out"`
	// Waiting is how many messages of up to 5,000 customers are not finished, in the stream and waiting for a call or a try.
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
	var all []Position
	for _, key := range keys {
		name, number, ok := strings.Cut(key, ".")
		lane, err := strconv.Atoi(number)
		if !ok || err != nil || checkName(name) != nil || len(names) > 0 && !slices.Contains(names, name) {
			continue // of another program, or of no interest
		}
		at, err := position(ctx, js, kv, name, lane)
		if err != nil {
			return nil, fmt.Errorf("push: %w", err)
		}
		all = append(all, at)
	}
	return all, nil
}

// position reads what is left of one name on one lane.
func position(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, name string, lane int) (Position, error) {
	r, _, err := readRecord(ctx, kv, name, lane)
	if err != nil {
		return Position{}, err
	}
	at := Position{Name: name, Lane: lane, Delivered: r.Delivered, Dead: r.Dead, Failed: r.Failed, OptedOut: r.OptedOut, Saved: r.At}
	stream := fired(js, lane)
	if r.Events {
		stream = eventlog.Events(js, lane)
	}
	bounds, err := stream.Bounds(ctx)
	if err != nil {
		return at, err
	}
	next := r.Next
	if consumer, err := js.Consumer(ctx, stream.Name(), name); err == nil {
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
	oldest, n, err := entries(ctx, js, name, lane)
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
func entries(ctx context.Context, js jetstream.JetStream, name string, lane int) (oldest time.Time, n uint64, err error) {
	stream, err := js.Stream(ctx, WaitStream)
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

// Forget removes all that is kept of a name: its consumers, waiting messages and positions, but not its dead letters. No
// process may run under it. After a crash in it, it is called again.
func Forget(ctx context.Context, js jetstream.JetStream, name string, lanes int) error {
	if err := checkName(name); err != nil {
		return err
	}
	var problems []error
	note := func(err error) {
		for _, none := range []error{jetstream.ErrConsumerNotFound, jetstream.ErrStreamNotFound, jetstream.ErrKeyNotFound, jetstream.ErrBucketNotFound} {
			if errors.Is(err, none) {
				return
			}
		}
		problems = append(problems, err)
	}
	kv, err := js.KeyValue(ctx, Bucket)
	note(err)
	all := reminders()
	for lane := range all.lanes(lanes) {
		note(js.DeleteConsumer(ctx, all.stream(js, lane).Name(), name))
		if lane != OutLane { // which has no events
			note(js.DeleteConsumer(ctx, eventlog.Events(js, lane).Name(), name))
		}
		if kv != nil {
			note(kv.Purge(ctx, bucketKey(name, lane)))
		}
	}
	stream, err := js.Stream(ctx, WaitStream)
	note(err)
	if err == nil {
		for c := range classes {
			note(js.DeleteConsumer(ctx, WaitStream, waitConsumer(name, c)))
		}
		note(stream.Purge(ctx, jetstream.WithPurgeSubject(waitSubjects+name+".>")))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("push: forgetting %s: %w", name, err)
	}
	return nil
}
