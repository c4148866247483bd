package pgd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

const (
	// immediateLimit is how long a postmaster may take for an immediate shutdown: it kills its children after 5 s.
	immediateLimit = 10 * time.Second
	// cancelDelay is how long pg_ctl may take to end when its context does: it may have been started with SIGINT ignored.
	cancelDelay = 500 * time.Millisecond
	// endPoll is how often a postmaster that is stopping is checked.
	endPoll = 10 * time.Millisecond
)

// postmaster is one run of `postgres`. pg_ctl has detached it: it is no child of this process, and may outlive it.
type postmaster struct {
	pid, port int
	status    string // "starting", "ready", "stopping", …
	// since is when it was started or adopted.
	since time.Time
	// logged is the length of the log in bytes before its start.
	logged int64
}

// running returns the postmaster of the cluster, nil when there is none.
func (h *home) running() *postmaster {
	raw, err := os.ReadFile(h.place.pidfile())
	if err != nil {
		return nil
	}
	// One value per line: process, directory, start, port, directory of the socket, address, shared memory, status. The last
	// ones are missing while it starts.
	lines := append(strings.Split(string(raw), "\n"), make([]string, 8)...)
	pid := pidIn(lines[0])
	port, _ := strconv.Atoi(strings.TrimSpace(lines[3]))
	if !serves(pid, h.place) {
		return nil
	}
	return &postmaster{pid: pid, port: port, status: strings.TrimSpace(lines[7]), since: time.Now()}
}

// pidIn returns the process id in the first line of a postmaster.pid, 0 when there is none. It is negative there in single-user
// mode.
func pidIn(line string) int {
	pid, _ := strconv.Atoi(strings.TrimSpace(line))
	return max(pid, -pid)
}

// serves reports whether process pid is alive and runs postgres on the cluster of p. An id read from a file may belong to
// any program by now, also to a thread of this one; this check keeps others from being stopped or waited for.
func serves(pid int, p place) bool {
	if pid <= 0 {
		return false
	}
	command := commandLine(pid)
	return isPostmaster(command, p.data()) || isPostmaster(command, "") && worksIn(pid, p.data())
}

// isPostmaster checks a command line as pg_ctl makes it, or that of single-user mode. dir "" matches any directory. Children
// of the postmaster have a title ("postgres: checkpointer") and no -D.
func isPostmaster(command, dir string) bool {
	option := " -D "
	if dir != "" {
		option += dir + " "
	}
	program, _, found := strings.Cut(command+" ", option)
	return found && filepath.Base(strings.TrimSuffix(program, " --single")) == "postgres"
}

// worksIn reports whether dir is the working directory of a process. That of a postmaster is its data directory, also after
// it was moved or is reached by another path. It is unknown on systems without /proc, and where this process may not see it.
func worksIn(pid int, dir string) bool {
	works, err := os.Stat(fmt.Sprintf("/proc/%d/cwd", pid))
	given, gerr := os.Stat(dir)
	return err == nil && gerr == nil && os.SameFile(works, given)
}

// commandLine returns the arguments of a process, joined by spaces, "" when it has ended.
func commandLine(pid int) string {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		return commandByPS(pid)
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty for a zombie
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(strings.TrimRight(string(raw), "\x00"), "\x00", " ")
}

// commandByPS is for systems without /proc.
func commandByPS(pid int) string {
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil { // ps exits with 1 if there is no such process
		return ""
	}
	return strings.TrimSpace(string(out))
}

// pgctl starts a postmaster by pg_ctl, as the user of the cluster. The output of both goes to the log, or nowhere when that
// cannot be opened: PostgreSQL works without it.
func (h *home) pgctl(ctx context.Context, nice int, options string) error {
	program, args := bounded(h.bin.control(), "start", "--wait", "--options="+options, "--silent")
	cmd := h.user.command(ctx, string(h.place), program, args...)
	// With its own -D, pg_ctl would pass the directory to a shell without escaping it.
	cmd.Env = append(cmd.Env, "PGDATA="+h.place.data())
	if log, err := os.OpenFile(h.place.log(), os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600); err == nil {
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
	} else {
		h.log.WarnContext(ctx, "starting PostgreSQL without its log, which cannot be opened as a file and is not followed as a link; "+
			"move it away and restart scrip to get one", "file", h.place.log(), "err", err)
	}
	// pg_ctl passes this on to the postmaster that it is starting.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, cancelDelay
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("running %s as user %s: %w", h.bin.control(), h.user.name, err)
	}
	yield(cmd.Process.Pid, nice)
	h.signals.launching.Send(struct{}{})
	return cmd.Wait()
}

// launch starts a postmaster on a port. It returns one that runs, but may not be ready yet. One that came up since the caller
// looked, because an earlier owner was killed in its start, is errStillUsed: its configuration and port may be others.
func (h *home) launch(ctx context.Context, port, nice int) (*postmaster, error) {
	if err := h.clearPidfile(); err != nil {
		return nil, err
	}
	if pm := h.running(); pm != nil {
		return nil, errors.Join(errStillUsed, fmt.Errorf("process %d runs PostgreSQL in %s", pm.pid, h.place.data()))
	}
	rotate(h.place.log(), logLimit)
	logged := sizeOf(h.place.log())
	options := fmt.Sprintf("-D %s -c %s -p %d", shellQuote(h.place.data()), shellQuote("config_file="+h.place.conf()), port)
	err := h.pgctl(ctx, nice, options)
	pm := h.running()
	if pm == nil { // pg_ctl gives up after a minute; a recovery may take longer
		return nil, h.exitError(logged, err)
	}
	yield(pm.pid, nice) // it has a session of its own
	pm.logged = logged
	return pm, nil
}

// shellQuote makes one word of s for the shell that pg_ctl runs.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// yield lowers the priority of a process and of its future children. Where the kernel schedules sessions as groups, it has
// no effect on backends, each of which begins a session. Errors are ignored: PostgreSQL works without it.
func yield(pid, nice int) {
	if nice == 0 {
		return
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, pid, nice)
}

// clearPidfile keeps a postmaster.pid that was left from preventing a start. It does not touch that of a running postmaster.
//
// PostgreSQL refuses to start while the process with the id in the file lives, whatever program that is, unless it started
// pg_ctl; so the id of this process is written there. Removing the file would be wrong: by its seventh line the new postmaster
// detects backends of the old one that are still writing.
func (h *home) clearPidfile() error {
	if h.running() != nil { // looked up here, because an earlier start may have come this far since the caller did
		return nil
	}
	raw, err := os.ReadFile(h.place.pidfile())
	first, rest, _ := strings.Cut(string(raw), "\n")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
	case pidIn(first) == 0:
		// The file is written and synced before the postmaster touches data. The power failed before that.
		err = os.Remove(h.place.pidfile())
	default:
		// Written in the place and renamed, because the unprivileged user may write in the data directory.
		staged := h.place.path("postmaster.pid.stale")
		if err = atomicfile.Write(staged, []byte(strconv.Itoa(os.Getpid())+"\n"+rest), 0o600); err == nil {
			err = errors.Join(h.user.give(staged), atomicfile.Rename(staged, h.place.pidfile()))
		}
	}
	if err != nil {
		return fmt.Errorf("clearing a stale postmaster.pid: %w", err)
	}
	return nil
}

// halt stops the postmaster of the cluster, if there is one, and returns when it has ended: a fast shutdown first, an
// immediate one after limit or when ctx ends, and at last kill. It reports whether the shutdown was clean; if not, the next
// start recovers. It sends the signals itself: pg_ctl may be missing during an upgrade, and does not stop single-user mode.
func (h *home) halt(ctx context.Context, limit time.Duration) (clean bool, err error) {
	if err := h.held(); err != nil {
		return false, err
	}
	const fast, immediate, kill = syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL
	for _, mode := range []syscall.Signal{fast, immediate, kill} {
		pm := h.running() // looked up before each signal: the process may have ended and its id been reused
		if pm == nil {
			return mode == fast, nil
		}
		stopping, cancel := context.WithTimeout(ctx, limit)
		if err = syscall.Kill(pm.pid, mode); err == nil {
			h.awaitEnd(stopping, pm)
		}
		cancel()
		if !serves(pm.pid, h.place) {
			return mode == fast, nil
		}
		ctx, limit = context.WithoutCancel(ctx), immediateLimit
	}
	return false, errors.Join(fmt.Errorf("PostgreSQL in %s does not end: its processes are stuck in the kernel", h.place.data()), err)
}

// awaitEnd waits until pm has ended, which is a moment after the end of its postmaster.pid.
func (h *home) awaitEnd(ctx context.Context, pm *postmaster) {
	tick := time.NewTicker(endPoll)
	defer tick.Stop()
	for serves(pm.pid, h.place) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Ports are chosen between these if one is free: below the range from which systems take ports for connections, which
// would take them while PostgreSQL restarts, and its URL would change. Tests of NATS use those below, clusters those above.
const lowestPort, highestPort = 20000, 25999

// freePort returns a loopback port that was free a moment ago. Another program may take it before PostgreSQL does; the
// caller then tries another.
func freePort() (int, error) {
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("finding a free loopback port: %w", err)
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("finding a free loopback port: listener at %v", l.Addr())
	}
	return addr.Port, nil
}
