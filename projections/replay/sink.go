package replay

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Sink keeps what is replayed. One Run uses it, from one goroutine: Begin, then Write and Flush, then End.
type Sink interface {
	// Begin makes ready for a log's events under a filter, and says behind which place each lane goes on. Lanes left
	// out begin where the filter says. After an error there is no End.
	Begin(ctx context.Context, log topology.Log, filter *Filter) (map[int]eventlog.Position, error)
	// Write keeps a batch, wholly or not at all. After an error only End follows.
	Write(ctx context.Context, b *Batch) error
	// Flush shows what was written to whoever looks: nothing more is there at the moment.
	Flush(ctx context.Context) error
	// End lets go of everything. cause says why: nil = all was replayed, or following was ended. A sink that keeps all
	// or nothing keeps nothing when there is a cause.
	End(ctx context.Context, cause error) error
}

// Func is a sink of a function: a projection into whatever the program likes, from the first event on. What an earlier
// run did is the function's to forget.
func Func(write func(ctx context.Context, b *Batch) error) Sink { return funcSink(write) }

type funcSink func(ctx context.Context, b *Batch) error

func (f funcSink) Begin(context.Context, topology.Log, *Filter) (map[int]eventlog.Position, error) {
	return nil, nil
}
func (f funcSink) Write(ctx context.Context, b *Batch) error { return f(ctx, b) }
func (f funcSink) Flush(context.Context) error               { return nil }
func (f funcSink) End(context.Context, error) error          { return nil }

// saver is a sink that saves where it is less often than it is flushed.
type saver interface {
	// due is after how long Flush is to be called again, though nothing was written; 0 = never.
	due() time.Duration
}
