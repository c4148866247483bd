package pgd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

const (
	// portTries is how many ports are tried when other programs take them first.
	portTries = 10
	// stillUsedLimit is how long backends of a killed postmaster may take to end.
	stillUsedLimit = 30 * time.Second
	stillUsedPoll  = 200 * time.Millisecond
)

// home is a place that is prepared, locked and free of orphans.
type home struct {
	place    place
	user     account
	bin      Binaries
	password string
	lock     ownership
	log      *logFile
}

// prepare finds the place, takes its lock, stops an orphan there, and makes the cluster if there is none.
func (c *Cluster) prepare(ctx context.Context) (_ *home, err error) {
	dataDir, all, err := c.materials()
	if err != nil {
		return nil, err
	}
	got, err := c.choose(ctx, dataDir, all[0])
	if err != nil {
		return nil, err
	}
	h := &home{place: got.place, user: got.user, bin: all[0], log: &logFile{path: got.place.log(), limit: logLimit}}
	if h.lock, err = lockPlace(h.place); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.leave())
		}
	}()
	if err := c.clearOrphan(ctx, h.place.data(), h.user); err != nil {
		return nil, err
	}
	if got.inherited {
		// Its tables are a fold of another log, which is not in this data directory any more.
		c.log.WarnContext(ctx, "setting aside the PostgreSQL cluster of an earlier data directory of this name",
			"dir", h.place.data(), "to", h.place.former())
		if err := errors.Join(os.RemoveAll(h.place.former()), atomicfile.Rename(h.place.data(), h.place.former())); err != nil {
			return nil, fmt.Errorf("setting aside %s: %w", h.place.data(), err)
		}
	}
	if err := remember(dataDir, h.place); err != nil {
		return nil, fmt.Errorf("recording where the PostgreSQL cluster is: %w", err)
	}
	if err := c.setAsideOther(ctx, h.place, all); err != nil {
		return nil, err
	}
	c.discardHalfMade(ctx, h.place)
	if !h.place.made() {
		if err := c.create(ctx, h.place, h.user, h.bin); err != nil {
			return nil, err
		}
	}
	if h.bin, err = binariesFor(h.place, all); err != nil {
		return nil, err
	}
	if h.password, err = c.password(ctx, h.place, h.user, h.bin); err != nil {
		return nil, err
	}
	if err := c.upgradeRoles(ctx, h); err != nil {
		return nil, err
	}
	return h, nil
}

// materials returns the data directory without symbolic links, and the installations to choose from.
func (c *Cluster) materials() (string, []Binaries, error) {
	if strings.TrimSpace(c.opts.DataDir) == "" {
		return "", nil, errors.New("no data directory given for the PostgreSQL cluster: give --data DIR")
	}
	dir, err := filepath.Abs(c.opts.DataDir)
	if err == nil {
		err = atomicfile.MkdirAll(dir, 0o755)
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", nil, fmt.Errorf("making the data directory: %w", err)
	}
	if c.opts.Binaries != (Binaries{}) {
		return dir, []Binaries{c.opts.Binaries}, nil
	}
	all, err := findAll()
	return dir, all, err
}

// leave closes the log and releases the lock of the place.
func (h *home) leave() error {
	h.log.Close()
	return h.lock.release()
}

// bringUp starts a postmaster in a prepared place and waits until it is ready. On an error nothing is left running.
func (c *Cluster) bringUp(ctx context.Context, h *home) (*postmaster, error) {
	c.mu.Lock()
	port := c.port
	c.mu.Unlock()
	begun := time.Now()
	for taken := 0; ; {
		pm, err := c.tryUp(ctx, h, port)
		switch {
		case err == nil:
			return pm, nil
		case errors.Is(err, errPortTaken) && taken < portTries:
			taken++
			port = 0
		case errors.Is(err, errStillUsed) && time.Since(begun) < stillUsedLimit:
			pause := time.NewTimer(stillUsedPoll)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
				return nil, errors.Join(context.Cause(ctx), err)
			}
		default:
			return nil, err
		}
	}
}

// tryUp is one attempt on one port, 0 = any free one.
func (c *Cluster) tryUp(ctx context.Context, h *home, port int) (*postmaster, error) {
	if err := c.clearOrphan(ctx, h.place.data(), h.user); err != nil {
		return nil, err
	}
	if err := h.writeConfig(c.opts.Settings); err != nil {
		return nil, fmt.Errorf("preparing the start of PostgreSQL in %s: %w", string(h.place), err)
	}
	if port == 0 {
		var err error
		if port, err = freePort(); err != nil {
			return nil, err
		}
	}
	pm, err := launch(h.place, h.user, h.bin, port, c.opts.Nice, h.log, c.deathSignal)
	if err != nil {
		return nil, err
	}
	if err := pm.awaitReady(ctx, h.place, h.password); err != nil {
		if pm.running() {
			pm.halt(ctx, c.opts.StopTimeout)
		}
		return nil, err
	}
	return pm, nil
}

// writeConfig writes the configuration and makes an empty directory for the socket: like a stale postmaster.pid, a lock file
// left beside an old socket would refuse the start if its process id belongs to another program now.
func (h *home) writeConfig(settings map[string]string) error {
	if os.Geteuid() == 0 { // checked again: much time may have passed since the place was chosen
		if err := notPlanted(filepath.Dir(string(h.place)), h.place); err != nil {
			return err
		}
	}
	return errors.Join(
		atomicfile.Sweep(h.place.hba()), atomicfile.Sweep(h.place.conf()), atomicfile.Sweep(h.place.password()), atomicfile.Sweep(h.place.admin()),
		atomicfile.Write(h.place.hba(), []byte(hbaText), 0o644),
		atomicfile.Write(h.place.conf(), []byte(configText(h.place, h.bin.walCompression(h.place.data()), settings)), 0o644),
		os.RemoveAll(h.place.run()),
		os.Mkdir(h.place.run(), 0o700),
		h.user.give(h.place.run()),
	)
}

// ownership is the lock on a place. The kernel releases it when its owner dies, however it dies: a postmaster that is found
// running while this process has the lock is therefore an orphan and has no owner.
type ownership struct{ file *os.File }

// lockPlace takes the lock. The error names the process that has it.
func lockPlace(p place) (ownership, error) {
	f, err := os.OpenFile(p.lock(), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return ownership{}, fmt.Errorf("opening the lock of the PostgreSQL cluster: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return ownership{}, fmt.Errorf("locking %s: %w", p.lock(), err)
		}
		owner := "another process"
		if raw, rerr := io.ReadAll(io.LimitReader(f, 32)); rerr == nil && len(raw) > 0 {
			owner = "process " + strings.TrimSpace(string(raw))
		}
		return ownership{}, fmt.Errorf("%s runs the PostgreSQL cluster %s: stop that one, use another --data, "+
			"or, if this data directory is a copy, remove its file %s", owner, string(p), pointerFile)
	}
	// Only for the message above.
	if err := errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		return ownership{}, errors.Join(fmt.Errorf("writing %s: %w", p.lock(), err), f.Close())
	}
	return ownership{f}, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

func (o ownership) release() error {
	if o.file == nil {
		return nil
	}
	return o.file.Close()
}
