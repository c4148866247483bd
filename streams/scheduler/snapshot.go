package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
)

const (
	// snapshotTimeout bounds one writing of a snapshot, and timeoutEach lets it take longer for each thing in it: beside busy
	// lanes, which it is slowest, a million reminders take two to three seconds.
	snapshotTimeout = 2 * time.Minute
	timeoutEach     = 10 * time.Microsecond
	// lastWords is how long a clean stop may take to write its snapshot; without it the next start replays more.
	lastWords = 5 * time.Second
)

// saver remembers what there is to save. A snapshot is what the book was between two messages, frozen, and written while
// the scheduler goes on.
type saver struct {
	restored bool      // the book came from a snapshot
	changed  int       // event lines since the last snapshot, by what they cost in a replay: see lightLines
	last     time.Time // when it was taken
	failed   bool      // it was not written: no hurry with the next
	again    time.Time // not tried before: it was somebody else's turn, nothing could be taken, or the last one took long
	writing  *writing  // nil if none is
}

// writing is a snapshot on its way into the store.
type writing struct {
	lines    int            // it covers
	frozen   *timers.Frozen // not done yet; nil when it is written
	turnOver func()
	save     func(context.Context) error
	cancel   context.CancelFunc
	took     time.Duration // set before done
	done     chan error    // receives once
}

// note is what a snapshot says beside its content and position: how far the fan-out had come.
type note struct {
	Sequence uint64 `json:"event_sequence"`
	Line     int    `json:"line"`
	LastR    uint64 `json:"last_r"`
}

func (r *run) snapshotName() string { return "sched-" + strconv.Itoa(r.lane) }

// restore sets the book and returns the place in the event log to go on behind. Whatever is wrong with the snapshots
// costs a replay, no more.
func (r *run) restore(ctx context.Context) eventlog.Position {
	r.saver.last = r.opts.Now()
	r.timers = timers.New(r.opts.Dir)
	beginning := eventlog.Position{Log: r.Scheduler.log, Lane: r.lane}
	if r.restoreFrom == nil {
		return beginning
	}
	var restored *timers.Timers
	format := timers.Format
	meta, found, err := r.restoreFrom.Load(ctx, r.snapshotName(),
		func(meta snapstore.Meta) error {
			format = meta.Format
			return r.acceptable(ctx, meta)
		},
		func(content io.Reader) (err error) {
			restored.Close() // of a snapshot that was damaged further on
			restored, err = timers.Read(r.opts.Dir, format, content)
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
	return beginning
}

// acceptable refuses a snapshot that would lead the book or its fan-out astray.
func (r *run) acceptable(ctx context.Context, meta snapstore.Meta) error {
	if meta.Format < timers.OldestFormat || meta.Format > timers.Format {
		return fmt.Errorf("the snapshot has format %d, this program reads %d to %d", meta.Format, timers.OldestFormat, timers.Format)
	}
	var n note
	if err := json.Unmarshal(meta.Note, &n); err != nil {
		return fmt.Errorf("the snapshot's note: %w", err)
	}
	told := eventlog.Source{Sequence: n.Sequence, Line: n.Line, LastR: n.LastR}
	if compareSources(told, r.fan.reached) > 0 {
		// The book has forgotten whom those reminders were for. An older snapshot, or none, tells them again.
		return fmt.Errorf("the snapshot was taken when the reminder stream came to %v, it ends at %v: the reminder stream lost its tail", told, r.fan.reached)
	}
	return meta.Check(ctx, r.events(), r.Scheduler.log)
}

// turnEvery is how often a snapshot that is due asks for its turn.
const turnEvery = 500 * time.Millisecond

const (
	// shareChanged: a snapshot is due when one line for every so many things in the book has changed. Sixty million
	// reminders must not be written again for each million lines.
	shareChanged = 4
	// restFor: after a snapshot that took a second to write there is none for so many seconds.
	restFor = 8
	// notWorth: a clean stop leaves changes below this share of the book to the next start's replay, which is faster than
	// the writing.
	notWorth = 16
)

// enough is after how many changed lines a snapshot is due at once.
func (r *run) enough(size int) int { return max(r.opts.SnapshotEvents, size/shareChanged) }

// snapshotDue is when the next snapshot is due as things stand, if anything has changed: at once if it is enough, else
// after a time that grows with the timers: a minute for up to a million things, two for two million.
func (r *run) snapshotDue(size int) time.Time {
	s := &r.saver
	due := s.again
	if s.failed || s.changed < r.enough(size) {
		steps := 1 + size/max(r.opts.SnapshotEvents, 1_000_000)
		if later := s.last.Add(r.opts.SnapshotEvery * time.Duration(steps)); later.After(due) {
			return later
		}
	}
	return due
}

// saveIfDue takes a snapshot when enough has changed, or long enough ago.
func (r *run) saveIfDue(ctx context.Context) {
	s := &r.saver
	if r.opts.Snapshots == nil {
		return
	}
	r.writeEnded(ctx)
	now := r.opts.Now()
	if s.writing != nil || s.changed == 0 || now.Before(r.snapshotDue(r.timers.Size())) {
		return
	}
	s.again = now.Add(turnEvery)
	if r.fan.settle(ctx) != nil { // before the turn: it may take long, and others wait
		return
	}
	turnOver, ok := r.opts.Snapshots.Turn()
	if !ok {
		return
	}
	frozen, save := r.take(ctx)
	if frozen == nil {
		turnOver()
		return
	}
	s.writing, s.changed = &writing{lines: s.changed, frozen: frozen, turnOver: turnOver, save: save, done: make(chan error, 1)}, 0
	r.freezeOn(ctx, freezeTime)
}

// freezeTime is for how long the fold stands still at once for a snapshot.
const freezeTime = 2 * time.Millisecond

// freezeOn goes on freezing, and when that is done begins to write.
func (r *run) freezeOn(ctx context.Context, howLong time.Duration) {
	w := r.saver.writing
	if w == nil || w.frozen == nil || !w.frozen.Continue(howLong) {
		return
	}
	w.frozen = nil
	background, cancel := context.WithTimeout(context.WithoutCancel(ctx), snapshotTimeout+time.Duration(r.timers.Size())*timeoutEach)
	w.cancel = cancel
	go func() {
		defer w.turnOver()
		began := time.Now()
		err := w.save(background)
		w.took = time.Since(began)
		w.done <- err
	}()
}

// take begins to freeze the book, at a place where the fan-out is done with everything folded. It returns how to write it
// once that is done, nil if none can be taken now. When that has been called for the last time the book is to be thawed.
func (r *run) take(ctx context.Context) (*timers.Frozen, func(context.Context) error) {
	if r.torn || r.folded.Sequence == 0 || r.fan.settle(ctx) != nil { // what failed there fails the loop, too
		return nil, nil
	}
	r.saver.last = r.opts.Now()
	reached := r.fan.reached
	notes, err := json.Marshal(note{reached.Sequence, reached.Line, reached.LastR})
	if err != nil {
		return nil, nil
	}
	meta := snapstore.Meta{Format: timers.Format, Position: r.folded.Position(r.Scheduler.log, r.lane), Note: notes}
	frozen := r.timers.Freeze()
	return frozen, func(ctx context.Context) error {
		return r.opts.Snapshots.Save(ctx, r.snapshotName(), meta, frozen.Write)
	}
}

// writeEnded goes on with the snapshot on its way, and looks whether it has arrived.
func (r *run) writeEnded(ctx context.Context) {
	r.freezeOn(ctx, freezeTime)
	w := r.saver.writing
	if w == nil || w.frozen != nil {
		return
	}
	select {
	case err := <-w.done:
		w.cancel()
		r.timers.Thaw()
		r.saver.writing, r.saver.failed = nil, err != nil
		if rested := r.opts.Now().Add(restFor * w.took); rested.After(r.saver.again) {
			r.saver.again = rested
		}
		if err != nil {
			r.saver.changed += w.lines // tried again after the usual time
			r.log.WarnContext(ctx, "snapshot not written", "err", err)
			return
		}
		r.opts.Metrics.snapshot.WithLabelValues(strconv.Itoa(r.lane)).Set(float64(r.saver.last.Unix()))
	default:
	}
}

// saveLast writes a snapshot before a clean stop, so that the next start has nothing to replay. There is little time: a
// process that is told to stop and does not is killed.
func (r *run) saveLast() {
	if r.opts.Snapshots == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if w := r.saver.writing; w != nil {
		r.freezeOn(ctx, time.Hour)
		select {
		case err := <-w.done:
			w.done <- err
		case <-ctx.Done():
		}
		r.writeEnded(ctx)
	}
	if r.saver.writing != nil || r.saver.changed == 0 || r.saver.changed < r.timers.Size()/notWorth {
		return
	}
	if frozen, save := r.take(ctx); frozen != nil {
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
		w.turnOver()
	default:
		w.cancel()
		<-w.done
	}
}
