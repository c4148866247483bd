package pgd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// outputDrainTimeout is how long the last output of a dead postmaster is waited for. Its backends may keep the pipe open, so the end
// of the output may never be read.
const outputDrainTimeout = 500 * time.Millisecond

// postmaster is one run of `postgres`, a direct child of this process.
type postmaster struct {
	pid  int
	port int
	// begun is when the process was started.
	begun time.Time
	last  *tail
	// exited is closed when the process has ended; exit may be read from then on.
	exited chan struct{}
	exit   error
	cmd    *exec.Cmd
}

// launch starts a postmaster for the place; it is not ready yet.
func launch(p place, user account, bin Binaries, port, nice int, log io.Writer, deathSignal bool) (*postmaster, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// It is not bound to a context: stopping a database has steps, see halt.
	cmd := user.command(context.Background(), string(p), bin.postgres(),
		"-D", p.data(), "-c", "config_file="+p.conf(), "-p", strconv.Itoa(port))
	cmd.Stdout, cmd.Stderr = w, w
	if deathSignal {
		setDeathSignal(cmd.SysProcAttr)
	}
	pm := &postmaster{port: port, begun: time.Now(), last: &tail{}, exited: make(chan struct{}), cmd: cmd}
	started := make(chan error)
	go func() {
		// The death signal is bound to the thread, so this goroutine keeps its thread until the process has ended.
		// It is never unlocked: the thread goes away with the goroutine.
		runtime.LockOSThread()
		err := cmd.Start()
		if err == nil {
			yield(cmd.Process.Pid, nice)
		}
		err = errors.Join(err, w.Close())
		started <- err
		if err == nil {
			pm.attend(r, log)
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s as user %s: %w", bin.postgres(), user.name, err), r.Close())
	}
	pm.pid = cmd.Process.Pid
	return pm, nil
}

// yield lowers the priority of a postmaster that was just started, and of its future children. Where the kernel schedules
// sessions as groups, the group's priority counts. Errors are ignored: PostgreSQL works without it.
func yield(pid, nice int) {
	if nice == 0 {
		return
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, pid, nice)
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(nice)), 0)
}

// attend reads the output until the process ends.
func (pm *postmaster) attend(r *os.File, log io.Writer) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.MultiWriter(pm.last, log), r) // neither writer fails; the deadline below ends it
	}()
	exit := pm.cmd.Wait()
	_ = r.SetReadDeadline(time.Now().Add(outputDrainTimeout)) // always possible on a pipe
	<-read
	_ = r.Close()
	if exit == nil {
		exit = errors.New("exit status 0")
	}
	pm.exit = exit
	close(pm.exited)
}

// running reports whether the process has not been seen to end.
func (pm *postmaster) running() bool {
	select {
	case <-pm.exited:
		return false
	default:
		return true
	}
}

// halt stops the postmaster and returns when it has ended: a fast shutdown first, an immediate one after limit or when
// ctx ends, and at last kill. It reports whether the shutdown was clean; if not, the next start recovers.
func (pm *postmaster) halt(ctx context.Context, limit time.Duration) (clean bool) {
	steps := []struct {
		signal syscall.Signal
		done   <-chan struct{}
		limit  time.Duration
	}{{syscall.SIGINT, ctx.Done(), limit}, {syscall.SIGQUIT, nil, immediateLimit}, {syscall.SIGKILL, nil, immediateLimit}}
	for i, step := range steps {
		_ = pm.cmd.Process.Signal(step.signal) // fails only when the process has ended; exited is closed then
		timer := time.NewTimer(step.limit)
		select {
		case <-pm.exited:
			timer.Stop()
			return i == 0
		case <-step.done:
		case <-timer.C:
		}
		timer.Stop()
	}
	return false
}

// freePort returns a loopback port that was free a moment ago. Another program may take it before PostgreSQL does; the
// caller then tries another.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("finding a free loopback port: %w", err)
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil || !ok {
		return 0, fmt.Errorf("finding a free loopback port: listener at %v: %w", l.Addr(), err)
	}
	return addr.Port, nil
}
