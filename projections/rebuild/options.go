package rebuild

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/streams/room"
)

// Phase is a phase of a rebuild.
type Phase string

// The phases, in order. Copies end after Indexing; a verification after Comparing, unless it repairs.
const (
	Loading    Phase = "loading"
	Indexing   Phase = "indexing"
	CatchingUp Phase = "catching up"
	Comparing  Phase = "comparing"
	Exchanging Phase = "exchanging" // the transaction is open; an error here rolls it back
	Repairing  Phase = "repairing"  // a piece is replaced, the transaction is open; an error here rolls that piece back
	Exchanged  Phase = "exchanged"  // or repaired
)

// Progress is the progress of a rebuild.
type Progress struct {
	Phase Phase
	// Messages of TotalMessages have been applied, with Events event lines in them.
	Messages, TotalMessages uint64
	Events                  uint64
	// Yielding: the rebuild pauses between batches, because lanes or live tables lag.
	Yielding bool
}

// Options of a session. The zero value selects the defaults.
type Options struct {
	// Parallel is how many lanes are filled at once. Defaults to the number of CPUs plus one, at most 4: each may use
	// about 50 MiB.
	Parallel int
	// Limits bound one transaction: see fill.Limits.
	Limits fill.Limits
	// Who is shown to other sessions that try to acquire the lock. Defaults to "scrip rebuild".
	Who string
	// Progress is called when a phase starts and several times a second, one call at a time. Defaults to no call.
	Progress func(Progress)
	// Logger defaults to slog.Default.
	Logger *slog.Logger
	// Hook is called at the start of each phase, in Loading and CatchingUp before each batch; an error ends the
	// rebuild there. One call at a time. For fault injection in tests.
	Hook func(Phase) error
	// Room replaces the measurement of the disk of PostgreSQL. For tests.
	Room func() (space room.Space, known bool)
}

func (o Options) withDefaults() Options {
	if o.Parallel <= 0 {
		o.Parallel = min(runtime.GOMAXPROCS(0)+1, 4)
	}
	o.Limits = o.Limits.OrDefault()
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

// reportEvery is the minimum time between progress reports within a phase.
const reportEvery = 200 * time.Millisecond

// reporter counts progress from many goroutines and reports it, one call at a time.
type reporter struct {
	mu       sync.Mutex
	now      Progress
	report   func(Progress)
	reported time.Time
}

// enter starts a phase and resets the count of messages.
func (r *reporter) enter(phase Phase, total uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Phase, r.now.Messages, r.now.TotalMessages = phase, 0, total
	r.reported = time.Now()
	r.report(r.now)
}

// update changes the counts, and reports them at most once per reportEvery.
func (r *reporter) update(change func(*Progress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if change(&r.now); time.Since(r.reported) >= reportEvery {
		r.reported = time.Now()
		r.report(r.now)
	}
}

func (r *reporter) get() Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}
