package hold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

const (
	// readAtOnce is how many messages of a lane are taken before what is due is let out.
	readAtOnce = 32
	// storeFor bounds one write.
	storeFor = 5 * time.Second
	// restAfter is for how long nothing was to be held back when the stage ends reading: a fan-out may learn of the settings late. It
	// looks once in lookEvery for what came all the same, so that little has to be read when a setting is set.
	restAfter = time.Minute
	lookEvery = time.Minute
	// setBack is how far the clock must be set back to count.
	setBack = time.Second
)

// Options of a Stage. All are required.
type Options struct {
	JetStream jetstream.JetStream
	Log       topology.Log
	Settings  settings.Source
	Clock     wall.Clock
	Logger    *slog.Logger
}

// Stage holds reminders back.
type Stage struct {
	Options
	state atomic.Pointer[leased]
}

// leased is a State as long as the lease under which it was reached.
type leased struct {
	State
	lease context.Context // of Run
}

// New returns a Stage. It sends no request.
func New(o Options) *Stage { return &Stage{Options: o} }

// State is what the Stage of this process has; nil while it does not run here. Between a failure and the next Run under
// the same lease it stays.
func (s *Stage) State() *State {
	if is := s.state.Load(); is != nil && is.lease.Err() == nil {
		return &is.State
	}
	return nil
}

// Run works until ctx ends, which is no error, or something fails. The next Run starts from what is stored: the lease calls it
// after a pause.
func (s *Stage) Run(ctx context.Context) error {
	for {
		err := s.run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, errRest) {
			return fmt.Errorf("reminders that are held back wait for now; what is held is read again: %w", err)
		}
		s.rest(ctx)
	}
}

// errRest: nothing is to be held back.
var errRest = errors.New("nothing is to be held back")

// rest waits until something is to be held back again, or it is time to look.
func (s *Stage) rest(ctx context.Context) {
	look := s.Clock.After(lookEvery)
	for {
		now, changed := s.Settings.Current()
		if now.Holds() {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-look:
			return
		case <-changed:
		}
	}
}

// lane is one stream that is read.
type lane struct {
	stream eventlog.Stream
	reader *eventlog.Reader
	inputs []*input // with reminders that are held, in order
	end    uint64   // what it ended with at the start
}

// past is when SCRIP_PUSH_OUT ended with a message.
type past struct {
	at       time.Time
	sequence uint64
}

// run is one start of a Stage. Its goroutine owns all of it.
type run struct {
	*Stage
	lease  context.Context // of Run
	owner  string
	kv     jetstream.KeyValue // of the mark
	out    eventlog.Stream
	writer *eventlog.Appender
	sealer eventlog.Sealer
	last   uint64 // what SCRIP_PUSH_OUT ends with

	lanes   []*lane
	wake    chan struct{}
	lines   map[string]*line
	serial  uint64              // of lines
	done    map[uint64]struct{} // identities of what SCRIP_PUSH_OUT had at the start, until all that was there then is read
	people  shards
	rules   rules
	now     time.Time
	holds   time.Time // when something was to be held back, or was, last
	pasts   []past    // by the hour, as far as days are counted
	mark    mark
	saved   mark
	savedAt time.Time
}

func (s *Stage) run(ctx context.Context) error {
	now, _ := s.Settings.Current()
	r := &run{
		Stage: s, lease: ctx, owner: uuid.NewString(), out: eventlog.Out(s.JetStream).In(s.Log), wake: make(chan struct{}, 1),
		lines: map[string]*line{}, people: newShards(now.PushShards), rules: rulesOf(now), now: s.Clock.Now(),
	}
	ctx, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	defer r.close()
	if err := r.open(ctx); err != nil {
		return err
	}
	for _, l := range r.lanes {
		watches.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-l.reader.Ready():
				}
				select {
				case r.wake <- struct{}{}:
				default:
				}
			}
		})
	}
	for {
		if err := r.turn(ctx); err != nil {
			return err
		}
	}
}

// turn takes what has arrived, lets out what is due, and waits for more of either.
func (r *run) turn(ctx context.Context) error {
	set, changed := r.Settings.Current()
	was := r.rules
	r.rules = rulesOf(set)
	if set.PushShards != len(r.people) {
		r.people = r.people.divide(set.PushShards)
	}
	now := r.Clock.Now()
	if now.Before(r.now.Add(-setBack)) || r.rules != was {
		r.people.again(now, &r.rules)
	}
	r.now = now
	more, err := r.read(ctx)
	if err == nil {
		err = r.release(ctx, set.PushBatch)
	}
	if set.Holds() || r.mark.Held > 0 {
		r.holds = now
	}
	rests := !more && r.done == nil && now.Sub(r.holds) >= restAfter
	if err == nil && (rests || r.Clock.Now().Sub(r.savedAt) >= saveEvery) {
		err = r.save(ctx)
	}
	if rests && err == nil {
		return errRest
	}
	if err != nil || more {
		return err
	}
	wait := saveEvery
	for _, s := range r.people {
		if at, ok := s.next(); ok {
			wait = min(wait, at.Sub(r.Clock.Now()))
		}
	}
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-r.wake:
	case <-changed:
	case <-r.Clock.After(max(wait, 0)):
	}
	return err
}

// read takes messages of all lanes. more is true if there may be more already.
func (r *run) read(ctx context.Context) (more bool, err error) {
	var batch []eventlog.Message
	behind := false
	for _, l := range r.lanes {
		if batch, err = l.reader.TryBatch(readAtOnce, batch[:0]); err != nil {
			return false, fmt.Errorf("stream %s: %w", l.stream.Name(), err)
		}
		more = more || len(batch) == readAtOnce
		for i := range batch {
			if m := &batch[i]; m.Hold {
				r.fold(ctx, l, m)
			}
		}
		behind = behind || l.reader.Sequence() < l.end
	}
	if !behind {
		r.done = nil
	}
	return more, nil
}

// fold takes in the reminders of a message.
func (r *run) fold(ctx context.Context, l *lane, m *eventlog.Message) {
	in := &input{sequence: m.Sequence, out: r.last}
	var skip func(uint64) bool
	if r.done != nil {
		in.out = r.mark.Out.Sequence // some of it may have been let out since
		skip = func(of uint64) bool { _, known := r.done[of]; return known }
	}
	var ev wire.Event
	for n, text := range eventlog.Lines(m.Payload) {
		if err := ev.ParseDue(text); err != nil {
			r.Logger.ErrorContext(ctx, "a line that does not belong there was ignored", "stream", l.stream.Name(), "sequence", m.Sequence, "line", n+1, "err", err)
			continue
		}
		of := r.line(&ev, priority.Of(m.Priority))
		if r.people.add(of, in, ev.CustomerIDs, ev.Rs, r.now, &r.rules, skip); of.held == 0 {
			delete(r.lines, of.key)
		}
	}
	r.mark.Held += uint64(in.left)
	if in.left > 0 {
		l.inputs = append(l.inputs, in)
	}
}

// line returns what reminders have in common, the same one for the same.
func (r *run) line(ev *wire.Event, class priority.Priority) *line {
	text := lineKey(ev)
	key := class.String() + text
	l := r.lines[key]
	if l == nil {
		r.serial++
		l = &line{event: *ev, class: class, n: r.serial, key: key, hash: hashOf(text)}
		l.event.CustomerIDs, l.event.Rs = nil, nil
		r.lines[key] = l
	}
	return l
}

// lineKey is a line without its customers, and without what the stage adds.
func lineKey(ev *wire.Event) string {
	one := *ev
	one.CustomerIDs, one.Rs, one.Merged, one.Withheld = nil, nil, false, ""
	return string(one.AppendJSON(nil))
}

// release lets out what is due now. What a failed write leaves in doubt is read again by the next start.
func (r *run) release(ctx context.Context, most int) error {
	released := make([]parcels, len(r.people))
	r.people.each(func(n int, s *shard) { released[n] = s.release(r.now, &r.rules) })
	for _, m := range messages(released, most) {
		header := eventlog.Header{Owner: r.owner}
		if m.class != priority.Normal {
			header.Priority = m.class.String()
		}
		write, done := context.WithTimeout(ctx, storeFor)
		sequence, err := r.writer.Publish(write, eventlog.Attempt{Expected: r.last, Header: r.sealer.Encode(header, r.last+1, m.payload), Payload: m.payload})
		done()
		if err != nil {
			return err
		}
		if sequence != r.last+1 {
			return fmt.Errorf("message %d was acknowledged as %d", r.last+1, sequence)
		}
		r.last = sequence
		for _, items := range m.items {
			for _, it := range items {
				it.from.left--
				if it.of.held--; it.of.held == 0 {
					delete(r.lines, it.of.key)
				}
				r.mark.Held--
			}
		}
		r.mark.add(m.counts)
		r.mark.Counted = sequence
	}
	for _, l := range r.lanes {
		for len(l.inputs) > 0 && l.inputs[0].left == 0 {
			l.inputs = l.inputs[1:]
		}
	}
	r.state.Store(&leased{r.mark.State, r.lease})
	return nil
}

func (r *run) close() {
	for _, l := range r.lanes {
		l.reader.Close()
	}
	if r.writer != nil {
		r.writer.Close()
	}
}
