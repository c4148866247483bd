package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/streams/machine"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	// syncs is how many fsyncs are timed; syncsFor bounds the time on a slow disk.
	syncs    = 32
	syncsFor = 3 * time.Second

	gib = 1 << 30
)

// bound is a value from which on something is a warning, or fails.
type bound[T any] struct{ warn, fail T }

// The bounds of the checks.
var (
	syncBound   = bound[time.Duration]{5 * time.Millisecond, 50 * time.Millisecond} // at most
	spaceBound  = bound[uint64]{10 * gib, gib}                                      // at least, bytes
	memoryBound = bound[uint64]{2 * gib, gib / 2}                                   // at least, bytes
	filesBound  = bound[uint64]{16384, 1024}                                        // at least, descriptors
	clockBound  = bound[time.Duration]{500 * time.Millisecond, 5 * time.Second}     // at most
)

// most returns the level of a value that should be small, least of one that should be large.
func most[T uint64 | time.Duration](value T, b bound[T]) Level {
	switch {
	case value >= b.fail:
		return Fail
	case value >= b.warn:
		return Warn
	}
	return OK
}

func least[T uint64 | time.Duration](value T, b bound[T]) Level {
	switch {
	case value < b.fail:
		return Fail
	case value < b.warn:
		return Warn
	}
	return OK
}

// graded is a finding whose fix is left out if all is well.
func graded(level Level, fix, format string, args ...any) []Finding {
	if level == OK {
		fix = ""
	}
	return bad(level, fix, format, args...)
}

// dir is the data directory, or the nearest one above it that exists.
func (v *visit) dir() (string, error) {
	path, err := filepath.Abs(v.Data)
	for err == nil {
		info, serr := os.Stat(path)
		switch {
		case serr == nil && info.IsDir():
			return path, nil
		case serr == nil:
			return "", fmt.Errorf("%s is a file", path)
		case !errors.Is(serr, fs.ErrNotExist) || filepath.Dir(path) == path:
			return "", serr
		}
		path = filepath.Dir(path)
	}
	return "", err
}

const dirFix = "give another directory with --data DIR, or run scrip as the owner of this one"

func (v *visit) data(context.Context) []Finding {
	dir, err := v.dir()
	if err != nil {
		return bad(Fail, dirFix, "the data directory: %v", err)
	}
	f, err := os.CreateTemp(dir, ".scrip-doctor-*")
	if err != nil {
		return bad(Fail, dirFix, "cannot write to %s: %v", dir, err)
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return bad(Fail, dirFix, "cannot write to %s: %v", dir, err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "format"))
	if err != nil {
		return good("%s can be written; there is no data yet", dir)
	}
	if format, err := strconv.Atoi(strings.TrimSpace(string(raw))); err != nil || format > datadir.Format {
		return bad(Fail, "use the newer scrip that made it, or give another directory with --data DIR", "%s has format %s, this program reads up to %d", dir, strings.TrimSpace(string(raw)), datadir.Format)
	}
	if v.running {
		return good("%s is used by the server with process %d", dir, v.server.PID)
	}
	return good("%s can be written; no server runs on it", dir)
}

// disk times fsyncs: an answer waits for one.
func (v *visit) disk(context.Context) []Finding {
	const fix = "put the data directory (and the store of NATS) on a local SSD"
	dir, err := v.dir()
	if err != nil {
		return nil // data has reported it
	}
	f, err := os.CreateTemp(dir, ".scrip-doctor-*")
	if err != nil {
		return nil
	}
	defer func() { _ = errors.Join(f.Close(), os.Remove(f.Name())) }()
	var took []time.Duration
	page := make([]byte, 4096)
	for began := time.Now(); len(took) < syncs && time.Since(began) < syncsFor; {
		at := time.Now()
		_, err := f.Write(page)
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			return bad(Fail, fix, "writing and syncing a file in %s: %v", dir, err)
		}
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	median, worst := took[len(took)/2], took[len(took)-1]
	if volatile(dir) {
		return bad(Warn, "choose a directory on a disk with --data DIR", "%s is in memory: everything is lost when the machine restarts", dir)
	}
	return graded(most(median, syncBound), fix, "an fsync in %s takes %s, at worst %s; an answer waits for one", dir, median.Round(10*time.Microsecond), worst.Round(10*time.Microsecond))
}

func (v *visit) space(context.Context) []Finding {
	dir, err := v.dir()
	if err != nil {
		return nil
	}
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return bad(Warn, "look at it with: df "+dir, "the free space of %s is unknown: %v", dir, err)
	}
	free := uint64(s.Bavail) * uint64(s.Bsize)
	return graded(least(free, spaceBound), "make room, or choose a larger disk with --data DIR", "%.1f GiB are free in %s; the log grows by 200 bytes a claim and is kept", float64(free)/gib, dir)
}

func (v *visit) memory(context.Context) []Finding {
	size := machine.Memory()
	if size.Bytes == 0 {
		return bad(Warn, "find out how much memory there is", "the memory of this machine is unknown")
	}
	from := "the limit of control group " + size.Limit
	if size.Limit == machine.Whole {
		from = "of the machine"
	}
	return graded(least(uint64(size.Bytes), memoryBound), "give it more memory: a claimed coupon takes 90 bytes of it", "%.1f GiB of memory (%s)", float64(size.Bytes)/gib, from)
}

// files is the limit of open files. Go has raised the soft limit to the hard one when this runs.
func (v *visit) files(context.Context) []Finding {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return bad(Warn, "look at it with: ulimit -n", "the limit of open files is unknown: %v", err)
	}
	return graded(least(uint64(limit.Cur), filesBound), "raise it: ulimit -n 65536, LimitNOFILE= in systemd, ulimits in compose", "%d files may be open at once", limit.Cur)
}

// ports that `scrip serve` would listen on.
func (v *visit) ports(ctx context.Context) (all []Finding) {
	if v.running {
		return good("the server listens: %s", natsx.WithoutUser(v.server.HTTPURL))
	}
	type port struct{ flag, addr string }
	list := []port{{"--http-listen", v.HTTPListen}}
	if v.NATS == "" {
		list = append(list, port{"--nats-listen", v.NATSListen})
	}
	for _, p := range list {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.addr)
		if err != nil {
			all = append(all, bad(Fail, "stop the program there, or start scrip with "+p.flag+" HOST:PORT", "cannot listen on %s: %v", p.addr, err)...)
			continue
		}
		_ = ln.Close()
		all = append(all, good("%s is free", p.addr)...)
	}
	return all
}
