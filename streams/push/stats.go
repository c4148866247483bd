package push

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// counters of a Pusher since it was made.
type counters struct {
	pushed, failed, dead, skipped, repeated atomic.Uint64
	stopped                                 atomic.Int64
}

// Stats is what a Pusher has done since it was made and what it does now.
type Stats struct {
	// Pushed customers: the function returned and did not report them as failed.
	Pushed uint64
	// FailedTries is how many tries of a message, one or more calls, failed for at least one customer.
	FailedTries uint64
	// Dead customers: they are in dead letters that this process wrote.
	Dead uint64
	// Skipped are foreign messages, lines that are no reminders, and messages in the skip list.
	Skipped uint64
	// Stopped lanes wait at a message that this program cannot read: run a newer one, or add it to the skip list.
	Stopped int
	// Repeated are messages that NATS delivered again although they were finished.
	Repeated uint64
	// InFlight are messages taken and not finished: in a call, or waiting for one here.
	InFlight int
	// Calling are calls in progress; Hanging those given up that have not returned.
	Calling, Hanging int
	// Away: the gateway does not work, and no call is made but a probe at Probe.
	Away  bool
	Probe time.Time
}

// Stats returns the numbers as they are now. It sends no request.
func (p *Pusher) Stats() Stats {
	calling, open, probe := p.gate.state(p.opts.Workers)
	return Stats{
		Pushed: p.count.pushed.Load(), FailedTries: p.count.failed.Load(), Dead: p.count.dead.Load(),
		Skipped: p.count.skipped.Load(), Repeated: p.count.repeated.Load(),
		InFlight: p.tracker.inFlight(), Calling: calling, Hanging: int(p.call.hung.Load()),
		Stopped: int(p.count.stopped.Load()), Away: open, Probe: probe,
	}
}

// Lag is how far a name is behind on one lane, with all its processes. All numbers are messages.
type Lag struct {
	Lane int
	// Pending have not been delivered to any process yet.
	Pending uint64
	// Unacked are with a process.
	Unacked int
	// Waiting are set aside: for a call, behind others of a higher priority, or for their next try. A message may wait in
	// parts, each of which counts.
	Waiting int
}

// Lag reads from the server how far the name is behind, lane by lane. A name that was never started is ErrGone. It needs
// the credentials of servers.
func (p *Pusher) Lag(ctx context.Context) ([]Lag, error) {
	if p.proxy != nil {
		return nil, errors.New("push: Lag needs credentials of servers, this sender has a key")
	}
	log, found, err := topology.Inspect(ctx, p.js)
	if err == nil && !found {
		err = errNoLog
	}
	if err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	lags := make([]Lag, log.Lanes)
	for lane := range lags {
		c, err := p.js.Consumer(ctx, p.source.stream(p.js, lane).Name(), p.opts.Name)
		if err != nil {
			return nil, fmt.Errorf("push: %w: lane %d, name %q: %w", ErrGone, lane, p.opts.Name, err)
		}
		info := c.CachedInfo()
		_, waiting, err := (&positions{js: p.js}).entries(ctx, p.opts.Name, lane)
		if err != nil {
			return nil, fmt.Errorf("push: %w", err)
		}
		lags[lane] = Lag{Lane: lane, Pending: info.NumPending, Unacked: info.NumAckPending, Waiting: int(waiting)}
	}
	return lags, nil
}
