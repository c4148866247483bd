package pgd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

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
