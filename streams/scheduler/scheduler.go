package scheduler

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// Snapshots stores snapshots by name. [snapstore.Store] does.
type Snapshots interface {
	Save(ctx context.Context, name string, meta snapstore.Meta, write func(io.Writer) error) error
	Load(ctx context.Context, name string, accept func(snapstore.Meta) error, read func(io.Reader) error) (snapstore.Meta, bool, error)
	// Turn is taken before each Save that others work beside.
	TryAcquire() (done func(), ok bool)
}

// Options of a scheduler. All but Snapshots and Dir are required.
type Options struct {
	// Snapshots stores the timers between runs. Without it every run replays the event stream from its first message.
	Snapshots Snapshots
	// Dir is where temporary files of each lane hold the customers of pending reminders: at most twice as many bytes as their
	// ids have, and 64 MiB, and while a snapshot is written what was filled before. They have no name, and are gone with the
	// process. Defaults to os.TempDir.
	Dir string
	// Config holds what operators set: batches, rate, concurrency and pauses.
	Config settings.Source
	// Load is where the scheduler reports what it publishes. While it reports clients' commands, to any lane of the process,
	// the fan-out takes no more of the machine than claims leave over.
	Load *load.Meter
	// Decides reports whether the lane decides commands now. While it does not, nothing is requested: requests that are not
	// decided would fill the command stream that producers need. It must be safe for concurrent use.
	Decides func() bool
	Metrics *Metrics
	Logger  *slog.Logger
	// Clock is the time of day.
	Clock wall.Clock
}

// Scheduler is the scheduler of one lane. Run does the work; it may be run again after it returned, not twice at once.
type Scheduler struct {
	js   jetstream.JetStream
	of   topology.Log // with the key, which makes the seals of reminder messages and checks those of events
	lane int
	opts Options
	load *load.Report // what it reports

	backlog atomic.Pointer[Backlog]

	stored  func(sequence uint64) // called by the fan-out; nil but in tests
	signals struct {
		Rested testsignal.Signal[rest] // all that can be done now is done
	}
}

// rest is how a run waits for what comes next.
type rest struct {
	at         wire.Instant // the time that it has seen
	folded     uint64       // the last event message that it has folded
	settings   *settings.Settings
	publishing bool // requests are on their way to the command stream
	quiet      bool // nothing is due, requested or on its way to the reminder stream, and no snapshot is being written
}

func (s *Scheduler) events() eventlog.Stream { return eventlog.Events(s.js, s.lane).In(s.of) }

func (s *Scheduler) reminders() eventlog.Stream { return eventlog.Reminders(s.js, s.lane).In(s.of) }

// New makes the scheduler of a lane. It starts nothing.
func New(js jetstream.JetStream, log topology.Log, lane int, opts Options) *Scheduler {
	opts.Logger = opts.Logger.With("component", "scheduler", "lane", lane)
	return &Scheduler{js: js, of: log, lane: lane, opts: opts, load: &opts.Load.Lanes[lane]}
}
