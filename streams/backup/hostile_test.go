package backup_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestAHostileDirectory: in place of each file there is something that blocks a reader, has no end, or is far too large. Each
// time the backup is refused at once, with the file's name.
func TestAHostileDirectory(t *testing.T) {
	r := newRig(t, streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t), 1)
	dir, _ := take(t, r.js)
	entries, err := os.ReadDir(dir)
	streamtest.Must(t, err)
	t.Chdir(dir) // the name of a socket is short
	for _, e := range entries {
		aside := filepath.Join(t.TempDir(), e.Name())
		streamtest.Must(t, os.Rename(e.Name(), aside))
		for what, put := range map[string]func(name string) error{
			"a FIFO":           func(name string) error { return syscall.Mkfifo(name, 0o600) },
			"a link":           func(name string) error { return os.Symlink(aside, name) },
			"a link to zeros":  func(name string) error { return os.Symlink("/dev/zero", name) },
			"a link to itself": func(name string) error { return os.Symlink(name, name) },
			"a directory":      func(name string) error { return os.Mkdir(name, 0o700) },
			"40 GB": func(name string) error {
				return errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, 40<<30))
			},
			"a socket": func(name string) error {
				l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name})
				if err == nil {
					l.SetUnlinkOnClose(false)
					err = l.Close()
				}
				return err
			},
		} {
			streamtest.Must(t, put(e.Name()))
			b, err := backup.Open(t.Context(), dir, nil, nil)
			if err == nil {
				err = b.CheckSeal(t.Context(), nil)
			}
			if !errors.Is(err, backup.ErrDamaged) || !strings.Contains(err.Error(), e.Name()+" ") {
				t.Errorf("%s is %s: %v", e.Name(), what, err)
			}
			streamtest.Must(t, os.RemoveAll(e.Name()))
		}
		streamtest.Must(t, os.Rename(aside, e.Name()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := backup.Open(ctx, dir, nil, func(int64, int64) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled in the midst: %v", err)
	}
}
