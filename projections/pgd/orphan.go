package pgd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

const (
	// orphanFast is how long an orphan may take for a fast shutdown, which ends with a checkpoint.
	orphanFast = 30 * time.Second
	// immediateLimit is how long a postmaster may take for an immediate shutdown: it kills its children after 5 s.
	immediateLimit = 10 * time.Second
	// processPoll is how often a process that is not a child is checked.
	processPoll = 20 * time.Millisecond
)

// pidfile is what the postmaster writes to postmaster.pid: one value per line.
type pidfile struct {
	pid    int
	status string // "starting", "ready", …
}

func pidfilePath(dir string) string { return filepath.Join(dir, "postmaster.pid") }

var errBadPidfile = errors.New("postmaster.pid holds no process number")

func readPidfile(dir string) (pidfile, error) {
	raw, err := os.ReadFile(pidfilePath(dir))
	if err != nil {
		return pidfile{}, err
	}
	lines := strings.Split(string(raw), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		return pidfile{}, errBadPidfile
	}
	pf := pidfile{pid: max(pid, -pid)} // negative: PostgreSQL in single-user mode
	if len(lines) > 7 {
		pf.status = strings.TrimSpace(lines[7])
	}
	return pf, nil
}

// clearOrphan stops a postmaster that an earlier owner of the place left running in dir, and makes sure that a
// postmaster.pid left there does not keep the next one from starting. The caller holds the place's lock.
func (c *Cluster) clearOrphan(ctx context.Context, dir string, user account) error {
	pf, err := readPidfile(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, errBadPidfile):
		// The file is written and synced before the postmaster touches data. The power failed before that.
		if err := os.Remove(pidfilePath(dir)); err != nil {
			return fmt.Errorf("removing a cut-off postmaster.pid: %w", err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("reading postmaster.pid: %w", err)
	}
	if !serves(ctx, pf.pid, dir) {
		return neutralizeStalePID(dir, user)
	}
	c.log.WarnContext(ctx, "stopping the PostgreSQL that an earlier scrip left running", "pid", pf.pid, "dir", dir)
	if err := stopOrphan(ctx, pf.pid, dir); err != nil {
		return err
	}
	// After an immediate stop the file may still exist.
	if _, err := readPidfile(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return neutralizeStalePID(dir, user)
}

func stopOrphan(ctx context.Context, pid int, dir string) error {
	for _, step := range []struct {
		signal syscall.Signal
		limit  time.Duration
	}{{syscall.SIGINT, orphanFast}, {syscall.SIGQUIT, immediateLimit}, {syscall.SIGKILL, immediateLimit}} {
		// Checked again right before each signal: the process may have ended meanwhile and its id been reused.
		if !serves(ctx, pid, dir) {
			return nil
		}
		if err := syscall.Kill(pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stopping the PostgreSQL left running in %s: %w; stop process %d by hand", dir, err, pid)
		}
		gone, err := awaitEnd(ctx, pid, dir, step.limit)
		if err != nil {
			return fmt.Errorf("waiting for the PostgreSQL left running in %s (process %d) to stop: %w", dir, pid, err)
		}
		if gone {
			return nil
		}
	}
	return fmt.Errorf("the PostgreSQL left running in %s does not stop: end process %d by hand", dir, pid)
}

func awaitEnd(ctx context.Context, pid int, dir string, limit time.Duration) (gone bool, err error) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(processPoll)
	defer tick.Stop()
	for {
		if !serves(ctx, pid, dir) {
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-deadline.C:
			return false, nil
		case <-tick.C:
		}
	}
}

// neutralizeStalePID makes a stale postmaster.pid harmless. A postmaster refuses to start while the process with the id in it lives,
// whatever program that is, unless it is its own parent; so the id of this process is written there. Removing the file would
// be wrong: by its seventh line the new postmaster detects backends of the old one that are still writing.
func neutralizeStalePID(dir string, user account) error {
	raw, err := os.ReadFile(pidfilePath(dir))
	if err != nil {
		return fmt.Errorf("reading a stale postmaster.pid: %w", err)
	}
	_, rest, _ := strings.Cut(string(raw), "\n")
	// Written in the place and renamed, because the unprivileged user may write in dir.
	staged := filepath.Join(filepath.Dir(dir), "postmaster.pid.stale")
	if err := atomicfile.Write(staged, []byte(strconv.Itoa(os.Getpid())+"\n"+rest), 0o600); err != nil {
		return fmt.Errorf("replacing a stale postmaster.pid: %w", err)
	}
	if err := errors.Join(user.give(staged), atomicfile.Rename(staged, pidfilePath(dir))); err != nil {
		return fmt.Errorf("replacing a stale postmaster.pid: %w", err)
	}
	return nil
}
