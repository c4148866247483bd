package rebuild

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
)

// The schemas beside the live one.
const (
	// NextSchema is what is being filled to become the live one.
	NextSchema = "scrip_next"
	// PreviousSchema holds the tables that a rebuild took out of use, until they are dropped.
	PreviousSchema = "scrip_previous"
	// ScratchSchema is filled to be looked at, or to get a name of its own.
	ScratchSchema = "scrip_scratch"
)

// Phase is what a rebuild is doing.
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

// Progress is how far a rebuild is.
type Progress struct {
	Phase Phase
	// Messages of TotalMessages have been applied, with Events event lines in them. Indexes of TotalIndexes are made.
	Messages, TotalMessages uint64
	Events                  uint64
	Indexes, TotalIndexes   int
	// Yielding says that it pauses between batches, because lanes or live tables lag.
	Yielding bool
}

// Options of a session. The zero value is fine.
type Options struct {
	// Parallel is how many lanes are filled at once. Defaults to one more than there are CPUs, at most 4: each may hold
	// some 50 MiB.
	Parallel int
	// BatchLines is how many event lines one transaction applies at most, give or take a message. Defaults to 20,000.
	BatchLines int
	// BatchBytes bounds the same in bytes. Defaults to 8 MiB.
	BatchBytes int
	// DropDependents lets what others made on the tables, and what cannot be kept, stay with tables that are put aside, and
	// be dropped with them. Without it rebuilding, undoing and dropping are refused then.
	DropDependents bool
	// Who is shown to others who ask for the same lock. Defaults to "scrip rebuild".
	Who string
	// Progress is called when a phase begins and several times a second, one call at a time. Defaults to nothing.
	Progress func(Progress)
	// Logger defaults to slog.Default.
	Logger *slog.Logger
	// Hook is called at the beginning of each phase, in Loading and CatchingUp before each batch; an error ends the
	// rebuild there. One call at a time. For tests that break things.
	Hook func(Phase) error
	// Room replaces the question how many bytes the disk of PostgreSQL has left. For tests.
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

// ErrRefused is the kind of every error that says "not like this": nothing was begun, and the text says what to do.
var ErrRefused = errors.New("refused")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrRefused}, args...)...)
}

// errDoubled: the log claims a coupon twice, which no lane does. Tables without keys cannot park the second line.
var errDoubled = errors.New("the log holds a row twice")
