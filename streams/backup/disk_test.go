package backup_test

import (
	"crypto/rand"
	"errors"
	"path/filepath"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/room"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestTheReserveOfTheDisk: a backup or a restore that does not fit beside the reserve does not begin, and one that reaches it,
// since others write, too, ends. Neither leaves anything.
func TestTheReserveOfTheDisk(t *testing.T) {
	const gib = 1 << 30
	r := newRig(t, streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t), 1)
	data := make([]byte, 512<<10)
	_, _ = rand.Read(data) // never fails
	for range 24 {
		if _, err := r.js.Publish(t.Context(), topology.Evt(0), data); err != nil {
			t.Fatal(err)
		}
	}
	free := uint64(0)
	disk := func() *room.Disk {
		return room.Measured("/d", func(string) (room.Space, error) { return room.Space{Free: free, Total: gib}, nil })
	}
	opts := backup.CreateOptions{Key: testKey, Logger: streamtest.Logger(t)}
	dir := filepath.Join(t.TempDir(), "b")
	for at, left := range map[string]uint64{"": gib/4 + 1<<20, topology.EvtStream(0): gib / 2} {
		free = left
		begun := false
		_, err := backup.CreateOn(t.Context(), r.js, dir, opts, disk(), func(stream string) error {
			if begun = true; stream == at {
				free = gib/4 - 1
			}
			return nil
		})
		if !errors.Is(err, room.ErrFull) || begun != (at != "") {
			t.Errorf("a backup, full at %q: begun %t, %v", at, begun, err)
		}
		gone(t, dir)
	}
	free = gib / 2
	_, err := backup.CreateOn(t.Context(), r.js, dir, opts, disk(), nil)
	streamtest.Must(t, err)

	js := streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t)
	for at, left := range map[string]uint64{"": gib/4 + 1<<20, topology.EvtStream(0): gib / 2} {
		free = left
		begun := false
		err := open(t, dir).RestoreHooked(t.Context(), js, backup.RestoreOptions{Disk: disk(), Logger: streamtest.Logger(t)}, func(stream string) {
			if begun = true; stream == at {
				free = gib/4 - 1
			}
		})
		if !errors.Is(err, room.ErrFull) || begun != (at != "") {
			t.Errorf("a restore, full at %q: begun %t, %v", at, begun, err)
		}
		if left := streams(t, js); len(left) != 1 || left[0] != topology.LeaseStream {
			t.Errorf("left: %v", left)
		}
	}
}
