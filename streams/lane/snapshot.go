package lane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
)

// snapshotName is the lane's name in the snapshot store.
func snapshotName(lane int) string { return "lane-" + strconv.Itoa(lane) }

// snapshotNote is what a snapshot holds besides the state and its position in the event log.
type snapshotNote struct {
	Covered uint64    `json:"command_sequence"`
	Stamped time.Time `json:"command_time"`
}

// considerSnapshot decides whether a snapshot is due.
func (o *owner) considerSnapshot() {
	due := o.term.EventsSinceSnapshot() >= o.opt.SnapshotEvents || o.term.EventsSinceSnapshot() > 0 && o.opt.Clock.Now().Sub(o.snapshotted) >= o.opt.SnapshotEvery
	if due && o.opt.Snapshots != nil && o.saved == nil {
		o.snapshotting = true
	}
}

// snapshot freezes the state and writes it in the background. The loop calls it when nothing is collected or in flight: the
// state is then exactly the fold of the log up to its mark. Freezing costs a pointer per page.
func (o *owner) snapshot(ctx context.Context) {
	o.snapshotting = false
	// Taken only now: a lane whose write has no result for long must not delay the snapshots of other lanes.
	release, ok := o.opt.Snapshots.TryAcquire()
	if !ok {
		return // considered again with the next tick
	}
	frozen, mark := o.term.Freeze()
	o.snapshotted = o.opt.Clock.Now()
	done := make(chan error, 1)
	o.saved = done
	o.opt.Metrics.snapshotting.WithLabelValues(o.lane.label).Set(1)
	go func() {
		defer release()
		ctx, cancel := context.WithTimeout(ctx, snapshotTime)
		defer cancel()
		done <- o.save(ctx, o.opt.Snapshots, mark, frozen)
	}()
}

func (o *owner) save(ctx context.Context, into *snapstore.Store, mark protocol.Mark, frozen *domain.Frozen) error {
	note, err := json.Marshal(snapshotNote{Covered: mark.Covered, Stamped: mark.Stamped})
	if err != nil {
		return err
	}
	meta := snapstore.Meta{Format: domain.SnapshotFormat, Position: mark.Position, Note: note}
	return into.Save(ctx, snapshotName(o.opt.Lane), meta, func(w io.Writer) error {
		_, err := frozen.WriteTo(w)
		return err
	})
}

func (o *owner) snapshotDone(ctx context.Context, err error) {
	o.saved = nil
	o.lane.signals.Saved.Send(err)
	o.opt.Metrics.snapshotting.WithLabelValues(o.lane.label).Set(0)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			o.opt.Logger.WarnContext(ctx, "snapshot not written; a restart replays more of the log", "err", err)
		}
		return
	}
	o.opt.Metrics.snapshotAt.WithLabelValues(o.lane.label).Set(float64(o.opt.Clock.Now().Unix()))
}

// saveShutdownSnapshot writes a last snapshot at a clean stop, so that the next start replays nothing. It is optional: it is given up
// when it takes too long.
func (o *owner) saveShutdownSnapshot() {
	if o.opt.Snapshots == nil || !o.term.Settled() || o.term.EventsSinceSnapshot() == 0 || o.term.Sequence() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownSnapshotTimeout)
	defer cancel()
	if o.saved != nil {
		select {
		case <-o.saved:
		case <-ctx.Done():
			return
		}
	}
	frozen, mark := o.term.Freeze()
	if err := o.save(ctx, o.opt.Snapshots.Unthrottled(), mark, frozen); err != nil {
		o.opt.Logger.Warn("no snapshot at the stop; the next start replays more of the log", "err", err)
	}
}

// snapshotTime bounds the writing of a snapshot, far beyond what a gigabyte takes: other snapshots wait for it.
const snapshotTime = 10 * time.Minute

// shutdownSnapshotTimeout bounds the stop: it must end before a supervisor that waits ten seconds kills the process.
const shutdownSnapshotTimeout = 4 * time.Second

// restore loads the newest snapshot that fits the log. A bad snapshot costs time and nothing else.
func (o *owner) restore(ctx context.Context) error {
	if o.opt.Snapshots == nil {
		return nil
	}
	if o.lane.distrusts {
		o.lane.distrusts = false
		return nil
	}
	var state *domain.Lane
	accept := func(meta snapstore.Meta) error {
		if meta.Format != domain.SnapshotFormat {
			return fmt.Errorf("snapshot format %d, this program reads %d", meta.Format, domain.SnapshotFormat)
		}
		return o.stream.Verify(ctx, o.opt.Log.UUID, meta.Position)
	}
	read := func(r io.Reader) (err error) {
		state, err = domain.ReadLane(o.opt.domainOptions(), r)
		return err
	}
	meta, ok, err := o.opt.Snapshots.Load(ctx, snapshotName(o.opt.Lane), accept, read)
	if err != nil || !ok {
		return err
	}
	var note snapshotNote
	if err := json.Unmarshal(meta.Note, &note); err != nil {
		return nil //nolint:nilerr // an unreadable note costs a full replay, like any other damage
	}
	o.term.Restore(state, protocol.Mark{Position: meta.Position, Covered: note.Covered, Stamped: note.Stamped})
	return nil
}

// unpackAfter is how long after its start a lane begins to unpack the campaigns that nobody has used: first the schedulers have to
// read what is due.
const unpackAfter = 10 * time.Second

// considerUnpacking unpacks the next campaign beside the loop, one in the process at a time, and no snapshot meanwhile.
func (o *owner) considerUnpacking() {
	if o.unpacked != nil || o.opt.Snapshots == nil || o.opt.Clock.Now().Sub(o.started) < unpackAfter {
		return
	}
	release, ok := o.opt.Snapshots.TryAcquire()
	if !ok {
		return // tried again with the next tick
	}
	p := o.term.State().Packed()
	if p == nil {
		release()
		return
	}
	done := make(chan *domain.Packed, 1)
	o.unpacked = done
	go func() {
		defer release()
		p.Unpack()
		done <- p
	}()
}

// install puts an unpacked campaign in place, and goes on with the next.
func (o *owner) install(p *domain.Packed) {
	o.term.State().Install(p)
	o.unpacked = nil
	o.considerUnpacking()
}

// distrust recovers from a snapshot that cannot be unpacked: the lane is loaded again, without it.
func (l *Lane) distrust(err *error) {
	switch v := recover().(type) {
	case nil:
	case *domain.DamagedError:
		l.opt.Logger.Error("the snapshot is damaged although its check sums fit; please report this with the log. The whole log is replayed", "lane", l.opt.Lane, "err", v)
		l.distrusts, *err = true, v
	default:
		panic(v)
	}
}
