// Package process starts servers and measures what they use.
//
//	Start ──> server, output to a file ──> ready? ──> it runs
//	               └── /proc: CPU time and memory of its whole tree ──> Meter
//
// Owner: the program that calls Start. When it is killed, the servers go on.
package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/process"
)

// Process is a server that was started.
type Process = process.Process

// Start runs a program, whose output is appended to the file log, and waits until ready returns nil instead of an error that
// wraps ErrWaiting. If that fails or takes too long it returns the process, if there is one, beside the error.
func Start(ctx context.Context, log string, within time.Duration, ready func(p *Process) error, program string, args ...string) (*Process, error) {
	p, err := process.Start(process.Command{Program: program, Args: args, Log: log})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return p, Poll(ctx, p, readyEvery, func() error { return ready(p) })
}

// readyEvery is how often ready is called.
const readyEvery = 20 * time.Millisecond

// ErrWaiting is what a check of Poll returns, wrapped, while its condition does not hold yet.
var ErrWaiting = errors.New("not yet")

// Poll calls check at once and then each time every has passed, until it returns nil or an error other than ErrWaiting.
// It fails when ctx ends, or when the server p, which may be nil, does.
func Poll(ctx context.Context, p *Process, every time.Duration, check func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var gone <-chan struct{}
	if p != nil {
		gone = p.Gone()
	}
	for {
		err := check()
		if !errors.Is(err, ErrWaiting) {
			return err
		}
		select {
		case <-tick.C:
		case <-gone:
			output := p.Output()
			return fmt.Errorf("the server ended (%s); its output: %s", p.Ended(), output[max(0, len(output)-2000):])
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}
