package snapstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// partSize is the size of a part in bytes. One part is held in memory while it is written. One Put of 480 MiB failed six times
	// of six.
	partSize = 8 << 20
	// DefaultPause between chunks: with chunks of 256 KiB no more than some 60 MiB/s.
	DefaultPause = 4 * time.Millisecond
	// chunkSize is the size of the messages of a part. Each costs an fsync.
	chunkSize = 256 << 10
	// keep is how many snapshots stay.
	keep = 2
	// partWait bounds the writing or reading of one part.
	partWait = time.Minute
	// cleanWait bounds the removal of old objects; the next snapshot removes the rest.
	cleanWait = 2 * time.Minute
	// orphanAge is the age at which garbage is removed that may be another server's Save: long after any part is written.
	orphanAge = time.Hour
)

// formatVersion is the format of manifests and pointers, not of what the parts hold (that is Meta.Format).
const formatVersion = 1

// Meta describes a snapshot. It is the caller's: the store stores and returns it.
type Meta struct {
	// Format is the format of the content. Load's accept decides which are known.
	Format int `json:"format"`
	// Position is the last message folded in.
	Position eventlog.Position `json:"position"`
	// Note is further data of the caller, as JSON.
	Note json.RawMessage `json:"note,omitempty"`
}

// errUnsealed is the kind of a snapshot without a valid seal. Its hashes prove that it is complete, not who wrote it.
var errUnsealed = errors.New("the snapshot carries no valid seal")

// manifest is the table of contents of one snapshot.
type manifest struct {
	Version int    `json:"version"`
	Meta    Meta   `json:"meta"`
	Parts   []part `json:"parts"`
}

type part struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// pointer is the value in KV: the valid snapshots, newest first.
type pointer struct {
	Version   int   `json:"version"`
	Snapshots []ref `json:"snapshots"`
}

type ref struct {
	// Prefix of the snapshot's objects: snap/<name>/<sequence>.<nonce>. The nonce keeps two owners, and two attempts,
	// from writing into each other's parts.
	Prefix string `json:"prefix"`
	// SHA256 of the manifest.
	SHA256 string `json:"sha256"`
	// Seal is described at seal.Key.Snapshot.
	Seal string `json:"seal"`
}

func (r ref) manifest() string  { return r.Prefix + "/manifest" }
func (r ref) part(i int) string { return fmt.Sprintf("%s/%05d", r.Prefix, i) }

// Options for New. Seal is required.
type Options struct {
	// Pause between chunks of 256 KiB. Defaults to DefaultPause.
	Pause time.Duration
	// Load reports whether lanes need the cores and the disk now: then pauses are twice as long. Nil = never.
	Load *load.Meter
	// Seal makes and checks the seals of snapshots: topology.Log.Seal.
	Seal *seal.Key
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Store saves and loads snapshots, for any number of goroutines, one per name. Names are tokens like "lane-3" or "sched-3":
// letters, digits, _ and -.
type Store struct {
	js    jetstream.JetStream
	obj   jetstream.ObjectStore
	kv    jetstream.KeyValue
	opts  Options
	swept atomic.Bool // orphaned chunks were looked for once in this process
	slot  chan struct{}

	tuned
}

// tuned are constants that tests replace.
type tuned struct {
	partSize             int
	orphanAge, readFirst time.Duration
}

// TryAcquire reserves the one slot for snapshots of this process, because each needs a core and the disk for seconds. Call done
// when the snapshot is written or given up. ok is false while the slot is taken: retry later, and freeze nothing before.
func (s *Store) TryAcquire() (done func(), ok bool) {
	select {
	case s.slot <- struct{}{}:
		return sync.OnceFunc(func() { <-s.slot }), true
	default:
		return nil, false
	}
}

// New opens the object store and the KV bucket that topology.Ensure made.
func New(ctx context.Context, js jetstream.JetStream, opts Options) (*Store, error) {
	if opts.Pause <= 0 {
		opts.Pause = DefaultPause
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	obj, err := js.ObjectStore(ctx, topology.SnapBucket)
	if err != nil {
		return nil, fmt.Errorf("opening object store %s: %w", topology.SnapBucket, err)
	}
	kv, err := js.KeyValue(ctx, topology.StateBucket)
	if err != nil {
		return nil, fmt.Errorf("opening bucket %s: %w", topology.StateBucket, err)
	}
	return &Store{js: js, obj: obj, kv: kv, opts: opts, slot: make(chan struct{}, 1), tuned: tuned{partSize, orphanAge, readFirst}}, nil
}

// unthrottledPause is the pause between chunks when no other work waits for the disk; there must be one, see pacedReader.
const unthrottledPause = 50 * time.Microsecond

// Unthrottled returns the same store for a save without other work beside it, such as the last one before an end: it does not
// pause for others, and does not sweep.
func (s *Store) Unthrottled() *Store {
	h := &Store{js: s.js, obj: s.obj, kv: s.kv, opts: s.opts, slot: s.slot, tuned: s.tuned}
	h.opts.Pause, h.opts.Load = min(unthrottledPause, s.opts.Pause), nil
	h.swept.Store(true)
	return h
}

// busyFactor is the factor of pauses while lanes are busy: 30 MB/s, so that ten million coupons take a quarter of a minute.
const busyFactor = 2

// rest pauses so that other work can use the disk and the cores.
func (s *Store) rest(ctx context.Context) error {
	d := s.opts.Pause
	if s.opts.Load.Level() != load.Idle {
		d *= busyFactor
	}
	return natsx.Pause(ctx, d)
}

func pointerKey(name string) string { return "snap." + name }

// pointerFor bounds the retries to read the pointer: longer than nats-server takes to elect a leader (4 to 9 s).
const pointerFor = 12 * time.Second

// readPointer reads the pointer from the leader: that of a replica that lags may name snapshots that were removed. It returns
// an empty pointer and revision 0 if there is none; one that cannot be read counts as none, but keeps its revision, so that
// the next Save replaces it.
func (s *Store) readPointer(ctx context.Context, name string) (pointer, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, pointerFor)
	defer cancel()
	e, ok, err := natsx.LastMessage(ctx, s.js, topology.StateStream, "$KV."+topology.StateBucket+"."+pointerKey(name))
	if err != nil {
		return pointer{}, 0, fmt.Errorf("reading the pointer to snapshots of %s: %w", name, err)
	}
	if !ok || e.Header.Get("KV-Operation") != "" { // deleted
		return pointer{}, 0, nil
	}
	var p pointer
	if err := json.Unmarshal(e.Data, &p); err != nil || p.Version != formatVersion {
		s.opts.Logger.Warn("pointer to snapshots not understood, continuing without them", "name", name, "format", p.Version, "known", formatVersion, "err", err)
		return pointer{}, e.Sequence, nil
	}
	return p, e.Sequence, nil
}

// sumOf is the SHA-256 that nats.go has of an object, in hex.
func sumOf(info *jetstream.ObjectInfo) (string, error) {
	sum, err := jetstream.DecodeObjectDigest(info.Digest)
	if err != nil {
		return "", fmt.Errorf("%w: %s has no hash: %w", errDamaged, info.Name, err)
	}
	return hex.EncodeToString(sum), nil
}
