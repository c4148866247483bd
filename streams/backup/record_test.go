package backup_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestTheLastBackupIsRecorded: one that fails changes nothing. A restored log names the backup that it was made from, not the one
// before it, which is what its copy of the bucket has.
func TestTheLastBackupIsRecorded(t *testing.T) {
	r := newRig(t, streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t), 1)
	recorded(t, r.js, backup.Record{}, false)
	opts := backup.CreateOptions{Key: testKey, WithoutKey: true, Server: "one", Logger: streamtest.Logger(t)}
	first := filepath.Join(t.TempDir(), "first")
	m, err := backup.Create(t.Context(), r.js, first, opts)
	streamtest.Must(t, err)
	want := backup.Record{Begun: m.Started, Dir: first, Server: "one", Bytes: m.Size()}
	recorded(t, r.js, want, true)

	second := filepath.Join(t.TempDir(), "second")
	fails := errors.New("it fails")
	if _, err := backup.CreateHooked(t.Context(), r.js, second, opts, func(string) error { return fails }); !errors.Is(err, fails) {
		t.Errorf("the second: %v", err)
	}
	recorded(t, r.js, want, true)
	opts.WithoutKey = false
	m, err = backup.Create(t.Context(), r.js, second, opts)
	streamtest.Must(t, err)
	want = backup.Record{Begun: m.Started, Dir: second, Server: "one", Bytes: m.Size(), CodeKey: true}
	recorded(t, r.js, want, true)

	js := streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t)
	restore(t, second, js, 1)
	have, _, err := backup.Last(t.Context(), js)
	streamtest.Must(t, err)
	want.Restored, want.Server = true, have.Server // the machine's name
	recorded(t, js, want, true)
}

func recorded(t *testing.T, js jetstream.JetStream, want backup.Record, there bool) {
	t.Helper()
	if have, ok, err := backup.Last(t.Context(), js); err != nil || ok != there || have != want || ok && have.Server == "" {
		t.Errorf("recorded: %+v, %t, %v, want %+v, %t", have, ok, err, want, there)
	}
}

// TestAStreamThatARestoreWouldRefuse: a backup with it is none, and is not recorded as one.
func TestAStreamThatARestoreWouldRefuse(t *testing.T) {
	t.Parallel()
	js := streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t)
	newRig(t, js, 1)
	stream, err := js.Stream(t.Context(), topology.EvtStream(1))
	streamtest.Must(t, err)
	changed := stream.CachedInfo().Config
	changed.Description = "changed"
	_, err = js.UpdateStream(t.Context(), changed)
	streamtest.Must(t, err)
	dir := filepath.Join(t.TempDir(), "backup")
	_, err = backup.Create(t.Context(), js, dir, backup.CreateOptions{Key: testKey, Version: "test", Logger: streamtest.Logger(t)})
	if err == nil || !strings.Contains(err.Error(), topology.EvtStream(1)) {
		t.Errorf("taken: %v", err)
	}
	recorded(t, js, backup.Record{}, false)
}
