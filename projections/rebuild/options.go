package rebuild

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// The schemas beside the live one.
const (
	// NextSchema is filled and then becomes the live one.
	NextSchema = "scrip_next"
	// PreviousSchema has the tables that a rebuild replaced, until they are dropped.
	PreviousSchema = "scrip_previous"
	// ScratchSchema is filled for a verification, or to be renamed as a copy.
	ScratchSchema = "scrip_scratch"
)

// Phase is a phase of a rebuild.
type Phase string

// The phases, in order. Copies end after Indexing; a verification after CatchingUp.
const (
	Loading    Phase = "loading"
	Indexing   Phase = "indexing"
	CatchingUp Phase = "catching up"
	Comparing  Phase = "comparing"
	Exchanging Phase = "exchanging" // the transaction is open; an error here rolls it back
	Exchanged  Phase = "exchanged"
)

// Progress is the progress of a rebuild.
type Progress struct {
	Phase Phase
	// Messages of TotalMessages have been applied, with Events event lines in them. Indexes of TotalIndexes are
	// created.
	Messages, TotalMessages uint64
	Events                  uint64
	Indexes, TotalIndexes   int
	// Yielding: the rebuild pauses between batches, because lanes or live tables lag.
	Yielding bool
}

// Options of a session. The zero value selects the defaults.
type Options struct {
	// Parallel is how many lanes are filled at once. Defaults to the number of CPUs plus one, at most 4: each may use
	// about 50 MiB.
	Parallel int
	// BatchLines is the maximum of event lines in one transaction, plus at most one message. Defaults to 20,000.
	BatchLines int
	// BatchBytes bounds the same in bytes. Defaults to 8 MiB.
	BatchBytes int
	// DropDependents allows that dependents which cannot be carried over remain on the previous tables and are dropped
	// with them. Without it, rebuilding, undoing and dropping return an error if there are such dependents.
	DropDependents bool
	// Who is shown to other sessions that try to acquire the lock. Defaults to "scrip rebuild".
	Who string
	// Progress is called when a phase begins and several times a second, one call at a time. Defaults to no call.
	Progress func(Progress)
	// Logger defaults to slog.Default.
	Logger *slog.Logger
	// Hook is called at the beginning of each phase, in Loading and CatchingUp before each batch; an error ends the
	// rebuild there. One call at a time. For fault injection in tests.
	Hook func(Phase) error
	// Room replaces the measurement of free bytes on the disk of PostgreSQL. For tests.
	Room func() (free uint64, known bool)
}

func (o Options) withDefaults() Options {
	if o.Parallel <= 0 {
		o.Parallel = min(runtime.NumCPU()+1, 4)
	}
	if o.BatchLines <= 0 {
		o.BatchLines = 20_000
	}
	if o.BatchBytes <= 0 {
		o.BatchBytes = 8 << 20
	}
	if o.Who == "" {
		o.Who = "scrip rebuild"
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if hook := o.Hook; hook == nil {
		o.Hook = func(Phase) error { return nil }
	} else {
		var one sync.Mutex
		o.Hook = func(p Phase) error {
			one.Lock()
			defer one.Unlock()
			return hook(p)
		}
	}
	return o
}

// ErrRefused is the kind of errors of a failed precondition: nothing was changed, and the text names what to do.
var ErrRefused = errors.New("refused")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrRefused}, args...)...)
}

// errDoubled: the log claims a coupon twice, which no lane does. Tables without keys cannot make a dead letter of the
// second line.
var errDoubled = errors.New("the log holds a row twice")

// reportEvery is the minimum time between progress reports within a phase.
const reportEvery = 200 * time.Millisecond

// reporter counts progress from many goroutines and reports it, one call at a time.
type reporter struct {
	messages, total, events atomic.Uint64
	indexes, allIndexes     atomic.Int64
	yielding                atomic.Bool

	mu       sync.Mutex
	report   func(Progress)
	phase    Phase
	reported time.Time
}

func newReporter(report func(Progress)) *reporter { return &reporter{report: report} }

// enter begins a phase and resets the count of messages.
func (r *reporter) enter(phase Phase, total uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = phase
	r.messages.Store(0)
	r.total.Store(total)
	r.reported = time.Now()
	r.report(r.now())
}

// update reports the counts, at most once per reportEvery.
func (r *reporter) update() {
	if !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	if time.Since(r.reported) >= reportEvery {
		r.reported = time.Now()
		r.report(r.now())
	}
}

func (r *reporter) now() Progress {
	return Progress{
		Phase: r.phase, Messages: r.messages.Load(), TotalMessages: r.total.Load(), Events: r.events.Load(),
		Indexes: int(r.indexes.Load()), TotalIndexes: int(r.allIndexes.Load()), Yielding: r.yielding.Load(),
	}
}
