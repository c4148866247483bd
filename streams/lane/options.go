package lane

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// Options of a lane. JetStream, Log and Key are required.
type Options struct {
	JetStream jetstream.JetStream
	Log       topology.Log
	Lane      int
	Key       [32]byte         // code key
	Snapshots *snapstore.Store // nil = no snapshots: every start replays the whole log
	Metrics   *Metrics         // nil = none
	Logger    *slog.Logger     // defaults to slog.Default

	// Config is the source of the grace of reminders and the tolerance of clocks. Defaults to settings.Default.
	Config settings.Source
	// WriteTimeout is how long a write of events may have no answer before its result counts as unknown and is looked up.
	// Defaults to 5 s.
	WriteTimeout time.Duration
	// A changed lane is snapshotted after SnapshotEvents event lines or after SnapshotEvery. They default to 1,000,000 and
	// 60 s.
	SnapshotEvents int
	SnapshotEvery  time.Duration
	// Retention is how long covered commands stay in the command stream before they are purged; sooner when the stream
	// is more than half full. Defaults to 10 minutes.
	Retention time.Duration
	// PurgeEvery is how often the command stream is checked for that. Defaults to 5 s.
	PurgeEvery time.Duration
	// Rebase, when not nil, makes the lane continue at the given command sequence (0 = choose) although the command stream
	// does not continue what the events cover. An operator requests it, once, after a restore.
	Rebase *uint64

	// Load is where the lane reports what it does. Defaults to a meter of its own.
	Load *load.Meter
	// Mover of the JetStream context's connection; it records which writes are answered. Nil = none.
	Mover *natsx.Mover
	// Contested is called after another owner has written the lane, before it is taken again. It returns nil if the lane is
	// this process's to take, else the error for Run to return. Nil = it always is.
	Contested func(ctx context.Context) error

	// Trace makes the span of a step with sampled lines, see package cmd/internal/trace; nil = there are no traces.
	Trace func(lane int, lines []string, began time.Time) (parent string, end func(sequence uint64, commands int))
	// WrongCodes counts wrong codes in commands straight to the log. Nil = nothing does.
	WrongCodes func(n int)

	// Clock is the source of time. Defaults to wall.Machine.
	Clock wall.Clock
}

func (o Options) withDefaults() Options {
	o.Logger = cmp.Or(o.Logger, slog.Default()).With("lane", o.Lane)
	if o.Config == nil {
		o.Config = settings.Fixed(settings.Default())
	}
	if o.Load == nil {
		o.Load = load.NewMeter(o.Lane + 1)
	}
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 5*time.Second)
	o.SnapshotEvents = cmp.Or(o.SnapshotEvents, 1_000_000)
	o.SnapshotEvery = cmp.Or(o.SnapshotEvery, time.Minute)
	o.Retention = cmp.Or(o.Retention, 10*time.Minute)
	o.PurgeEvery = cmp.Or(o.PurgeEvery, 5*time.Second)
	if o.Log.Seal == nil {
		o.Log = o.Log.WithKey(o.Key)
	}
	if o.Clock == nil {
		o.Clock = wall.Machine
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return o
}

// domainOptions returns the options of the pure state.
func (o Options) domainOptions() domain.LaneOptions {
	now, _ := o.Config.Current()
	return domain.LaneOptions{Lane: o.Lane, Lanes: o.Log.Lanes, Key: o.Key, Grace: now.ReminderGrace}
}
