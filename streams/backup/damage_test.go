package backup_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestDamage: of every file one byte is flipped, the end is cut off, the whole is taken away. Each time the backup is
// refused, with the file named, before any request to a server.
func TestDamage(t *testing.T) {
	s := streamtest.Start(t, streamtest.Lanes(lanes))
	r, _ := claimed(t, s.JetStream(t), 1, 1, 100)
	dir, m := take(t, r.js)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2*len(m.Streams)+4 {
		t.Fatalf("%d files of %d streams: %v", len(entries), len(m.Streams), err)
	}
	open(t, dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		whole, err := os.ReadFile(path)
		streamtest.Must(t, err)
		flip := func(at int) []byte {
			b := append([]byte(nil), whole...)
			b[at] ^= 1 << (at % 7)
			return b
		}
		for what, content := range map[string][]byte{
			"first byte flipped": flip(0), "middle byte flipped": flip(len(whole) / 2), "last byte flipped": flip(len(whole) - 1),
			"last byte cut off": whole[:len(whole)-1], "half of it cut off": whole[:len(whole)/2], "empty": {}, "longer": append(whole[:len(whole):len(whole)], '\n'), "missing": nil,
		} {
			if content == nil {
				err = os.Remove(path)
			} else {
				err = os.WriteFile(path, content, 0o600)
			}
			streamtest.Must(t, err)
			b, err := backup.Open(t.Context(), dir, &testKey, nil)
			if err == nil {
				err = b.CheckSeal(t.Context(), nil)
			}
			if !errors.Is(err, backup.ErrDamaged) && (!errors.Is(err, backup.ErrUnsealed) || e.Name() != "SHA256SUMS.seal") || !strings.Contains(err.Error(), e.Name()) {
				t.Errorf("%s, %s: %v", e.Name(), what, err)
			}
		}
		streamtest.Must(t, os.WriteFile(path, whole, 0o600))
	}
	open(t, dir)
	if _, err := backup.Open(t.Context(), t.TempDir(), nil, nil); !errors.Is(err, backup.ErrDamaged) {
		t.Errorf("an empty directory: %v", err)
	}
	if _, err := backup.Open(t.Context(), filepath.Join(t.TempDir(), "nowhere"), nil, nil); err == nil || !strings.Contains(err.Error(), "there is no backup at") || strings.Contains(err.Error(), "stat ") {
		t.Errorf("no directory: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := backup.Open(ctx, dir, &testKey, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
