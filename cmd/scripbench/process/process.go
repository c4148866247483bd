// Package process starts servers and measures what they use.
//
//	Start ──> server, output to a file ──> ready? ──> Stop (SIGTERM, then SIGKILL)
//	               └── /proc: CPU time and memory of its whole tree ──> Meter
//
// Owner: the program that calls Start. When it is killed, the kernel (on Linux) sends SIGTERM to the servers.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Process is a server that was started.
type Process struct {
	cmd  *exec.Cmd
	log  string
	gone chan struct{}
}

// Start runs a program, whose output is appended to the file log, and waits until ready returns nil instead of an error that
// wraps ErrWaiting. If that fails or takes too long it returns the process, if there is one, beside the error.
func Start(ctx context.Context, log string, within time.Duration, ready func(p *Process) error, program string, args ...string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(program, args...), log: log, gone: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = deathSignal()
	started := make(chan error)
	go func() {
		// The kernel sends its signal when the thread that started the process ends, so that thread is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // died reports how it ended
		}
		_ = out.Close()
		close(p.gone)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return p, Poll(ctx, p, readyEvery, func() error { return ready(p) })
}

// readyEvery is how often ready is called.
const readyEvery = 20 * time.Millisecond

// PID is the root of its processes.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop sends SIGTERM and, after the given time, SIGKILL: at once for 0. It waits for the end.
func (p *Process) Stop(within time.Duration) {
	if within > 0 {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.gone:
			return
		case <-time.After(within):
		}
	}
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// died is the error of a server that ended too early, with the end of its output.
func (p *Process) died() error {
	output, _ := os.ReadFile(p.log)
	output = output[max(0, len(output)-2000):]
	return fmt.Errorf("%s ended (%s); its output: %s", filepath.Base(p.cmd.Path), p.cmd.ProcessState, bytes.TrimSpace(output))
}

// ErrWaiting is what a check of Poll returns, wrapped, while its condition does not hold yet.
var ErrWaiting = errors.New("not yet")

// Poll calls check at once and then each time every has passed, until it returns nil or an error other than ErrWaiting.
// It fails when ctx ends, or when the server p, which may be nil, does.
func Poll(ctx context.Context, p *Process, every time.Duration, check func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var gone chan struct{}
	if p != nil {
		gone = p.gone
	}
	for {
		err := check()
		if !errors.Is(err, ErrWaiting) {
			return err
		}
		select {
		case <-tick.C:
		case <-gone:
			return p.died()
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// Until waits for an instant.
func Until(ctx context.Context, at time.Time) error {
	wait := time.Until(at)
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
