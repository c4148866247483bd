package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/fanout"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
)

const (
	// snapshotTimeout bounds one writing of a snapshot, and timeoutEach lets it take longer for each thing in it: beside busy
	// lanes, which it is slowest, a million reminders take two to three seconds.
	snapshotTimeout = 2 * time.Minute
	timeoutEach     = 10 * time.Microsecond
	// lastSaveTimeout is how long a clean stop may take to write its snapshot; without it the next start replays more.
	lastSaveTimeout = 5 * time.Second
)

// saver is the state of taking snapshots. A snapshot is what the timers were between two messages, frozen, and written while
// the scheduler goes on.
type saver struct {
	restored bool      // the timers came from a snapshot
	changed  int       // event lines since the last snapshot, by what they cost in a replay: see lightLines
	last     time.Time // when it was taken
	failed   bool      // it was not written: no hurry with the next
	again    time.Time // not tried before: another lane was writing, nothing could be taken, or the last one took long
	writing  *writing  // nil if none is
}

// writing is a snapshot that is being taken or written.
type writing struct {
	lines   int            // it covers
	frozen  *timers.Frozen // not done yet; nil when it is written
	release func()
	save    func(context.Context) error
	cancel  context.CancelFunc
	done    chan struct{} // closed when it is written, or not
	took    time.Duration
	err     error
}

// note is stored with a snapshot beside its content and position: how far the fan-out had come.
type note struct {
	Sequence uint64 `json:"event_sequence"`
	Line     int    `json:"line"`
	LastR    uint64 `json:"last_r"`
}

func (r *run) snapshotName() string { return "sched-" + strconv.Itoa(r.lane) }

// restore sets the timers and returns the position in the event log after which to go on. Whatever is wrong with the
// snapshots costs a replay, no more.
func (r *run) restore(ctx context.Context) eventlog.Position {
	r.saver.last = r.opts.Clock.Now()
	r.timers = timers.New(r.opts.Dir)
	first := eventlog.Position{Log: r.of.UUID, Lane: r.lane}
	if r.restoreFrom == nil {
		return first
	}
	var restored *timers.Timers
	meta, found, err := r.restoreFrom.Load(ctx, r.snapshotName(),
		func(meta snapstore.Meta) error { return r.acceptable(ctx, meta) },
		func(content io.Reader) (err error) {
			restored.Close() // of a snapshot that was damaged further on
			restored, err = timers.Read(r.opts.Dir, content)
			return err
		})
	switch {
	case err != nil:
		r.log.WarnContext(ctx, "no snapshot could be read; replaying all events", "err", err)
	case found && restored != nil:
		r.timers, r.saver.restored = restored, true
		return meta.Position
	}
	restored.Close()
	return first
}

// acceptable refuses a snapshot that does not fit the event stream or the reminder stream.
func (r *run) acceptable(ctx context.Context, meta snapstore.Meta) error {
	if meta.Format != timers.Format {
		return fmt.Errorf("the snapshot has format %d, this program reads format %d; a newer scrip reads it", meta.Format, timers.Format)
	}
	var n note
	if err := json.Unmarshal(meta.Note, &n); err != nil {
		return fmt.Errorf("the snapshot's note: %w", err)
	}
	reached := eventlog.Source{Sequence: n.Sequence, Line: n.Line, LastR: n.LastR}
	if fanout.CompareSources(reached, r.fan.Reached) > 0 {
		// The snapshot lacks the customers of those reminders. They are published again from an older one, or a replay.
		return fmt.Errorf("the snapshot was taken when the reminder stream came to %v, it ends at %v: the reminder stream lost its tail", reached, r.fan.Reached)
	}
	return r.events().Verify(ctx, r.of.UUID, meta.Position)
}

const (
	// A snapshot is due when snapshotLines have changed, or one line for every shareChanged things in the timers, whichever is more:
	// sixty million reminders must not be written again for each million lines. Or after snapshotEvery for each million things.
	snapshotLines = 1_000_000
	snapshotEvery = time.Minute
	shareChanged  = 4
	// restFor: none is due for restFor times as long as the last one took to write.
	restFor = 8
	// retryEvery is how often one that is due is tried while other lanes write theirs.
	retryEvery = 500 * time.Millisecond
	// notWorth: a clean stop leaves changes below this share of the timers to the replay of the next start, which is faster
	// than the writing.
	notWorth = 16
	// freezeTime is for how long the fold stops at once for a snapshot.
	freezeTime = 2 * time.Millisecond
)

// snapshotDue is when the next snapshot, of that many things, is due if anything has changed.
func (s *saver) snapshotDue(size int) time.Time {
	later := s.last.Add(snapshotEvery * time.Duration(1+size/snapshotLines))
	if enough := s.changed >= max(snapshotLines, size/shareChanged); enough && !s.failed || later.Before(s.again) {
		return s.again
	}
	return later
}

// saveIfDue takes a snapshot when enough has changed, or long enough ago.
func (r *run) saveIfDue(ctx context.Context) {
	s := &r.saver
	if r.opts.Snapshots == nil {
		return
	}
	r.writeEnded(ctx)
	now := r.opts.Clock.Now()
	if s.writing != nil || s.changed == 0 || now.Before(s.snapshotDue(r.timers.Size())) {
		return
	}
	s.again = now.Add(retryEvery)
	release, ok := r.opts.Snapshots.TryAcquire()
	if !ok {
		return
	}
	frozen, save := r.take()
	if frozen == nil {
		release()
		return
	}
	s.writing, s.changed = &writing{lines: s.changed, frozen: frozen, release: release, save: save, done: make(chan struct{})}, 0
	r.freezeOn(ctx, freezeTime)
}

// freezeOn goes on freezing, and when that is done starts to write.
func (r *run) freezeOn(ctx context.Context, howLong time.Duration) {
	w := r.saver.writing
	if w == nil || w.frozen == nil || !w.frozen.Continue(howLong) {
		return
	}
	w.frozen = nil
	background, cancel := context.WithTimeout(context.WithoutCancel(ctx), snapshotTimeout+time.Duration(r.timers.Size())*timeoutEach)
	w.cancel = cancel
	go func() {
		defer close(w.done)
		defer w.release()
		started := time.Now()
		w.err = w.save(background)
		w.took = time.Since(started)
	}()
}

// take starts to freeze the timers, if the fan-out has published everything folded. It returns how to write them once that is
// done, nil if no snapshot can be taken now. After the last call of that the timers have to be thawed.
func (r *run) take() (*timers.Frozen, func(context.Context) error) {
	if r.torn || r.folded.Sequence == 0 || !r.fan.Settled() {
		return nil, nil
	}
	r.saver.last = r.opts.Clock.Now()
	reached := r.fan.Reached
	notes, err := json.Marshal(note{reached.Sequence, reached.Line, reached.LastR})
	if err != nil {
		return nil, nil
	}
	meta := snapstore.Meta{Format: timers.Format, Position: r.folded.Position(r.of.UUID, r.lane), Note: notes}
	frozen := r.timers.Freeze()
	return frozen, func(ctx context.Context) error {
		return r.opts.Snapshots.Save(ctx, r.snapshotName(), meta, frozen.Write)
	}
}

// writeEnded goes on with the snapshot that is being taken, and takes in the result if it is stored.
func (r *run) writeEnded(ctx context.Context) {
	r.freezeOn(ctx, freezeTime)
	w := r.saver.writing
	if w == nil || w.frozen != nil || !fanout.Closed(w.done) {
		return
	}
	w.cancel()
	r.timers.Thaw()
	r.saver.writing, r.saver.failed = nil, w.err != nil
	if rested := r.opts.Clock.Now().Add(restFor * w.took); rested.After(r.saver.again) {
		r.saver.again = rested
	}
	if w.err != nil {
		r.saver.changed += w.lines // tried again after the usual time
		r.log.WarnContext(ctx, "snapshot not written", "err", w.err)
		return
	}
	r.opts.Metrics.snapshot.WithLabelValues(strconv.Itoa(r.lane)).Set(float64(r.saver.last.Unix()))
}

// saveLast writes a snapshot before a clean stop, so that the next start has nothing to replay. There is little time: a
// process that does not stop in time is killed.
func (r *run) saveLast() {
	if r.opts.Snapshots == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastSaveTimeout)
	defer cancel()
	if w := r.saver.writing; w != nil {
		r.freezeOn(ctx, time.Hour)
		select {
		case <-w.done:
		case <-ctx.Done():
		}
		r.writeEnded(ctx)
	}
	if r.saver.writing != nil || r.saver.changed == 0 || r.saver.changed < r.timers.Size()/notWorth {
		return
	}
	if r.fan.Drain(ctx, 0) != nil {
		return
	}
	if frozen, save := r.take(); frozen != nil {
		defer r.timers.Thaw()
		frozen.Continue(time.Hour)
		if err := save(ctx); err != nil {
			r.log.WarnContext(ctx, "snapshot not written before stopping; the next start replays more", "err", err)
		}
	}
}

// abandon ends the writing under way, if any, and waits for it.
func (s *saver) abandon() {
	switch w := s.writing; {
	case w == nil:
	case w.frozen != nil:
		w.release()
	default:
		w.cancel()
		<-w.done
	}
}
