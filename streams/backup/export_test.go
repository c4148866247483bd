package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/room"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// CreateHooked is Create that calls hook when a stream's copying has started; its error is that of the copying.
func CreateHooked(ctx context.Context, js jetstream.JetStream, dir string, opts CreateOptions, hook func(stream string) error) (*Manifest, error) {
	w, err := newWorkdir(dir)
	if err != nil {
		return nil, err
	}
	return create(ctx, js, w, opts, hook)
}

// CreateFull is Create on a disk with room for so many bytes.
func CreateFull(ctx context.Context, js jetstream.JetStream, dir string, opts CreateOptions, room int64) (*Manifest, error) {
	w, err := newWorkdir(dir)
	if err != nil {
		return nil, err
	}
	var left atomic.Int64
	left.Store(room)
	w.create = func(path string) (file, error) {
		f, err := createFile(path)
		return &fullFile{f, &left}, err
	}
	return create(ctx, js, w, opts, nil)
}

// CreateOn is CreateHooked on another disk.
func CreateOn(ctx context.Context, js jetstream.JetStream, dir string, opts CreateOptions, disk *room.Disk, hook func(stream string) error) (*Manifest, error) {
	w, err := newWorkdir(dir)
	if err != nil {
		return nil, err
	}
	w.disk = disk
	return create(ctx, js, w, opts, hook)
}

type fullFile struct {
	file
	room *atomic.Int64
}

func (f *fullFile) Write(p []byte) (int, error) {
	if f.room.Add(-int64(len(p))) < 0 {
		return 0, syscall.ENOSPC
	}
	return f.file.Write(p)
}

// RestoreHooked is Restore that calls hook when the first bytes of a stream have been sent, and before "the end".
func (b *Backup) RestoreHooked(ctx context.Context, js jetstream.JetStream, opts RestoreOptions, hook func(at string)) error {
	return b.restore(ctx, js, opts, hook)
}

// CopyWithConsumers copies a stream as Create does, and its consumers.
func CopyWithConsumers(ctx context.Context, js jetstream.JetStream, name string, w io.Writer) (size int64, err error) {
	sub, err := js.Conn().SubscribeSync(js.Conn().NewInbox())
	if err != nil {
		return 0, err
	}
	s := &snapshot{name: name, sub: sub}
	settings := map[string]any{"deliver_subject": sub.Subject, "chunk_size": chunkSize}
	if err := request(ctx, js, "STREAM.SNAPSHOT."+name, settings, &s.info); err != nil {
		return 0, err
	}
	return s.receive(ctx, w, func(int64) {})
}

// File reads a file of a backup.
func File(t testing.TB, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	streamtest.Must(t, err)
	return data
}

// Text decrypts a file of a backup, and Encrypted encrypts a text as that file.
func Text(t testing.TB, dir, name string, key [32]byte) []byte {
	t.Helper()
	text, err := decrypt(bytes.NewReader(File(t, dir, name)), newBox(key, logOf(t, dir)), name)
	streamtest.Must(t, err)
	data, err := io.ReadAll(text)
	streamtest.Must(t, err)
	return data
}

// Encrypted is described at Text.
func Encrypted(t testing.TB, dir, name string, key [32]byte, text []byte) []byte {
	t.Helper()
	var file bytes.Buffer
	streamtest.Must(t, encrypt(&file, newBox(key, logOf(t, dir)), name, func(to io.Writer) error {
		_, err := to.Write(text)
		return err
	}))
	return file.Bytes()
}

func logOf(t testing.TB, dir string) string {
	t.Helper()
	var m Manifest
	streamtest.Must(t, json.Unmarshal(File(t, dir, manifestFile), &m))
	return m.Log
}

// Impatient makes a restore wait no longer than a moment for another one.
func (o RestoreOptions) Impatient() RestoreOptions {
	o.patience = time.Second
	return o
}

// Window limits the bytes in flight of each copy.
func (o CreateOptions) Window(bytes int) CreateOptions {
	o.window = bytes
	return o
}
