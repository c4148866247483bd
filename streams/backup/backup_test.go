package backup_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestWhileClaimsAreMade: backups are taken while claims are made, owners purge as hard as they can, and reminders fire.
// Each holds no reminder without its event and no event without its command, starts where it must, and a lane that is
// restored from it goes on: what had been answered before the backup started is a repeat with the same code.
func TestWhileClaimsAreMade(t *testing.T) {
	s := streamtest.Start(t, streamtest.Lanes(lanes))
	r := newRig(t, s.JetStream(t), 1)
	r.work(func(o *lane.Options) {
		o.Retention, o.PurgeEvery, o.SnapshotEvents = time.Millisecond, 5*time.Millisecond, 5000
	})
	opens := time.Now().Add(time.Hour)
	for n := range lanes {
		r.request(n, create(campaign(n)), fmt.Sprintf(`{"id":"soon-%d","type":"create_campaign","campaign":"%s","codes":0,"opens_at":%q}`, n, soon(n), opens.UTC().Format(time.RFC3339Nano)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer cancel()
	var mu sync.Mutex
	held := map[string]string{}
	for n := range lanes {
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i += 50 {
				var lines []string
				for k := i; k < i+50; k++ {
					lines = append(lines, claim(campaign(n), fmt.Sprintf("l%d-%d", n, k)))
				}
				// However slow the machine is, some become due while claims are made.
				before := time.Until(opens).Truncate(time.Millisecond) - time.Duration(1+i%1500)*time.Millisecond
				lines = append(lines, fmt.Sprintf(`{"id":"remind-%d-%d","type":"remind","campaign":"%s","customer_id":"%d","kind":"opens","before":"%s"}`, n, i, soon(n), i, before))
				outs, err := r.try(n, lines...)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				for _, out := range outs[:50] {
					held[out.ID] = out.Code
				}
				mu.Unlock()
			}
		})
	}
	streamtest.Eventually(t, "commands are purged, reminders delivered", func() bool {
		for n := range lanes {
			if b, err := eventlog.Commands(r.js, n).Bounds(t.Context()); err != nil || b.First < 10 {
				return false
			}
			if b, err := eventlog.Reminders(r.js, n).Bounds(t.Context()); err != nil || b.Last < 3 {
				return false
			}
		}
		return true
	})
	for range 2 {
		mu.Lock()
		answered := maps.Clone(held)
		mu.Unlock()
		dir, m := take(t, r.js)

		to := streamtest.Start(t, streamtest.Lanes(lanes))
		restore(t, dir, to.JetStream(t), 0)
		other := newRig(t, to.JetStream(t), 1)
		for n := range lanes {
			consistent(t, other, n)
		}
		other.work(nil)
		other.repeats(answered)
		for n := range lanes {
			other.events(n)
		}
		other.stop()
		to.Shutdown()
		if m.Messages() == 0 || !m.Ended.After(m.Started) {
			t.Errorf("manifest %+v", m)
		}
	}
	for n := range lanes {
		before := r.first(n)
		streamtest.Eventually(t, "purging goes on after the backup", func() bool { return r.first(n) > before })
	}
}

// first is the first command that a lane has not purged.
func (r *rig) first(lane int) uint64 {
	r.t.Helper()
	b, err := eventlog.Commands(r.js, lane).Bounds(r.t.Context())
	streamtest.Must(r.t, err)
	return b.First
}

// soon is a campaign of the lane whose opening people are reminded of.
func soon(lane int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("soon%d", i); topology.LaneOf(name, lanes) == lane {
			return name
		}
	}
}

// consistent checks a lane as it was restored, before it is worked.
func consistent(t *testing.T, r *rig, n int) {
	t.Helper()
	messages, _ := r.events(n)
	last := messages[len(messages)-1]
	covered := last.Next() - 1
	commands, err := eventlog.Commands(r.js, n).Bounds(t.Context())
	streamtest.Must(t, err)
	if commands.First > covered || commands.Last < covered {
		t.Errorf("lane %d: the events cover up to %d, the commands are %d to %d", n, covered, commands.First, commands.Last)
	}
	if commands.Messages != commands.Last-commands.First+1 {
		t.Errorf("lane %d: there are holes in the commands: %+v", n, commands)
	}
	stamped, err := eventlog.Commands(r.js, n).Get(t.Context(), covered)
	if err != nil || !stamped.Time.Truncate(time.Microsecond).Equal(last.CommandTime) {
		t.Errorf("lane %d: command %d is of %v, the events record %v (%v)", n, covered, stamped.Time, last.CommandTime, err)
	}
	due := 0
	r.read(eventlog.Reminders(r.js, n), func(m *eventlog.Message) {
		due++
		if m.Source.Sequence > last.Sequence {
			t.Errorf("lane %d: a reminder of event %d, the events end at %d", n, m.Source.Sequence, last.Sequence)
		} else if digest := messages[m.Source.Sequence-1].Digest(); digest != m.SourceDigest {
			t.Errorf("lane %d: the reminder's event %d has digest %s, expected %s", n, m.Source.Sequence, digest, m.SourceDigest)
		}
	})
	if due == 0 {
		t.Errorf("lane %d: no reminders in the backup", n)
	}
}

// TestPositionsStay: a position recorded before the backup, as read tables keep it, is a place in the restored log, and
// the snapshots in it are used.
func TestPositionsStay(t *testing.T) {
	s := streamtest.Start(t, streamtest.Lanes(lanes))
	r, held := claimed(t, s.JetStream(t), 1, 5, 100)
	r.stop() // writes snapshots
	var checkpoints []eventlog.Position
	for n := range lanes {
		messages, _ := r.events(n)
		checkpoints = append(checkpoints, messages[2].Position(r.log.UUID, n), messages[len(messages)-1].Position(r.log.UUID, n))
	}
	dir, _ := take(t, r.js)
	to := streamtest.Start(t, streamtest.Lanes(lanes))
	restore(t, dir, to.JetStream(t), 1)
	other := newRig(t, to.JetStream(t), 1)
	if other.log.UUID != r.log.UUID || !other.log.Created.Equal(r.log.Created) {
		t.Errorf("log %+v became %+v", r.log, other.log)
	}
	for _, p := range checkpoints {
		if err := eventlog.Events(other.js, p.Lane).Verify(t.Context(), other.log.UUID, p); err != nil {
			t.Error(err)
		}
	}
	other.work(nil)
	for n, w := range other.run {
		if status := w.Status(); status.Replayed != 0 {
			t.Errorf("lane %d replayed %d lines, its snapshot was not used", n, status.Replayed)
		}
	}
	other.repeats(held)
	other.claims(0, 500, 501, held)
	other.stop()
	to.Kill(t) // and it is all on disk
	again := newRig(t, to.JetStream(t), 1)
	again.work(nil)
	again.repeats(held)
}

// TestPurgesWait: while a backup holds a lane its owner purges nothing, the next owner neither; when the backup's process
// dies they go on by themselves.
func TestPurgesWait(t *testing.T) {
	s := streamtest.Start(t, streamtest.Lanes(lanes))
	r := newRig(t, s.JetStream(t), 1)
	hard := func(o *lane.Options) { o.Retention, o.PurgeEvery = time.Millisecond, 5*time.Millisecond }
	r.work(hard)
	held := map[string]string{}
	for n := range lanes {
		r.request(n, create(campaign(n)))
	}
	h, err := lease.TakeLock(t.Context(), r.js, lease.PurgeLock(0), "test", time.Second)
	streamtest.Must(t, err)
	dies := streamtest.Background(t, h.Run)
	had := r.first(0)
	work := func(from int) {
		for i := from; i < from+5; i++ {
			for n := range lanes {
				r.claims(n, i, i+1, held)
			}
		}
		streamtest.Eventually(t, "the lane without an owner purges", func() bool { return r.first(1) > uint64(from) })
	}
	work(0)
	r.stop()
	r.work(hard)
	work(10)
	if now := r.first(0); now != had {
		t.Errorf("the lane was purged up to %d while it was held", now)
	}
	dies() // it is not renewed any more
	expire(t, r.js, lease.PurgeLock(0))
	streamtest.Eventually(t, "the hold runs out", func() bool { return r.first(0) > had })
}

// TestABrokenOrderIsNoticed: if commands are purged although a backup copies them, because its hold was lost, the backup
// fails rather than hold commands that start after what its events cover.
func TestABrokenOrderIsNoticed(t *testing.T) {
	s := streamtest.Start(t, streamtest.Lanes(lanes))
	r, held := claimed(t, s.JetStream(t), 1, 20, 10)
	purged := uint64(2)
	for _, tc := range []struct {
		name string
		at   string // what has been started when it happens
		some bool   // only commands that the copied events cover
	}{
		{"covered ones, while they are copied", topology.CmdStream(1), true},
		{"before the commands are copied", topology.EvtStream(1), false},
		{"while they are copied", topology.CmdStream(1), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from := 1000 + len(held)
			dir := filepath.Join(t.TempDir(), "backup")
			_, err := backup.CreateHooked(t.Context(), r.js, dir, backup.CreateOptions{Key: testKey, Logger: streamtest.Logger(t)}, func(stream string) error {
				if stream != tc.at {
					return nil
				}
				r.claims(1, from, from+1, held) // covers more than the copied events do
				from++
				commands, err := r.js.Stream(t.Context(), topology.CmdStream(1))
				if err == nil && tc.some {
					purged++
					return commands.Purge(t.Context(), jetstream.WithPurgeSequence(purged))
				}
				if err == nil {
					err = commands.Purge(t.Context())
				}
				r.claims(1, from, from+1, held)
				from++
				return err
			})
			if err == nil || !strings.Contains(err.Error(), "lane 1") || !strings.Contains(err.Error(), "cover") {
				t.Errorf("the backup: %v", err)
			}
			gone(t, dir)
		})
	}
}

// gone checks that nothing is left of a backup that failed.
func gone(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// TestBackupsThatFail: each reports the reason, and leaves nothing.
func TestBackupsThatFail(t *testing.T) {
	s := streamtest.Start(t, streamtest.Lanes(lanes))
	js := s.JetStream(t)
	parent := t.TempDir()
	if _, err := backup.Create(t.Context(), js, filepath.Join(parent, "b"), backup.CreateOptions{Key: testKey}); err == nil || !strings.Contains(err.Error(), "nothing to back up") {
		t.Errorf("a server without a log: %v", err)
	}
	r := newRig(t, js, 1)
	exists := filepath.Join(t.TempDir(), "there")
	streamtest.Must(t, os.Mkdir(exists, 0o700))
	inTheWay := filepath.Join(t.TempDir(), "b")
	streamtest.Must(t, os.Mkdir(inTheWay+".incomplete", 0o700))
	for _, tc := range []struct {
		name, dir, want string
		opts            backup.CreateOptions
	}{
		{"exists", exists, "exists already", backup.CreateOptions{Key: testKey}},
		{"no parent", filepath.Join(parent, "no", "b"), "make its parent directory", backup.CreateOptions{Key: testKey}},
		{"something in the way", inTheWay, "is no unfinished backup", backup.CreateOptions{Key: testKey}},
		{"another key", filepath.Join(parent, "b"), "fingerprint", backup.CreateOptions{Key: [32]byte{9}}},
	} {
		if _, err := backup.Create(t.Context(), r.js, tc.dir, tc.opts); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if _, err := os.Stat(inTheWay + ".incomplete"); err != nil {
		t.Errorf("what was in the way: %v", err)
	}
	_, err := backup.CreateFull(t.Context(), r.js, filepath.Join(parent, "b"), backup.CreateOptions{Key: testKey}, 2000)
	if err == nil || !strings.Contains(err.Error(), "no space for the backup") || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a full disk: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = backup.CreateHooked(ctx, r.js, filepath.Join(parent, "b"), backup.CreateOptions{Key: testKey}, func(stream string) error {
		if stream == topology.EvtStream(0) {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	gone(t, filepath.Join(parent, "b"))
	streamtest.Must(t, r.js.DeleteStream(t.Context(), topology.RmdStream(1)))
	if _, err := backup.Create(t.Context(), r.js, filepath.Join(parent, "b"), backup.CreateOptions{Key: testKey}); err == nil || !strings.Contains(err.Error(), topology.RmdStream(1)) {
		t.Errorf("a lost stream: %v", err)
	}
	gone(t, filepath.Join(parent, "b"))
	if _, held, err := lease.Locked(t.Context(), r.js, lease.PurgeLock(0)); held || err != nil {
		t.Errorf("purging is still held: %v", err)
	}
}

// TestABackupBreaksAndGoesOn: a connection that breaks while a part is copied costs that part, not the backup; and what a
// dead backup left is removed, what a living one writes is not.
func TestABackupBreaksAndGoesOn(t *testing.T) {
	s := streamtest.Start(t, streamtest.Lanes(lanes))
	r, _ := claimed(t, s.JetStream(t), 1, 1, 100)
	dir := filepath.Join(t.TempDir(), "b")
	streamtest.Must(t, os.Mkdir(dir+".incomplete", 0o700))
	for _, name := range []string{"scrip-backup.lock", "SCRIP_EVT_0.snapshot.age"} {
		streamtest.Must(t, os.WriteFile(filepath.Join(dir+".incomplete", name), []byte("dead"), 0o600))
	}
	broken := false
	_, err := backup.CreateHooked(t.Context(), r.js, dir, backup.CreateOptions{Key: testKey, Logger: streamtest.Logger(t)}, func(stream string) error {
		if _, err := backup.Create(t.Context(), r.js, dir, backup.CreateOptions{Key: testKey}); err == nil || !strings.Contains(err.Error(), "another backup is writing") {
			t.Errorf("a second backup to the same directory: %v", err)
		}
		if stream == topology.EvtStream(1) && !broken {
			broken = true
			return backup.ErrInterrupted
		}
		return nil
	})
	if err != nil || !broken {
		t.Fatal(err)
	}
	open(t, dir)
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
		t.Errorf("beside the backup: %v %v", entries, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the backup's directory: %v %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "SHA256SUMS")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a file of the backup: %v %v", info, err)
	}
}
