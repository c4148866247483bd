package snapstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

const (
	// partTries is how often a part is put; the server may be busy (10167) or electing a leader.
	partTries = 3
	tryPause  = time.Second
)

// Save writes a snapshot under a name and makes it the newest; older ones but one, and the remains of interrupted saves, are
// removed. write produces the content; its error ends the Save and leaves the earlier snapshots as they are.
//
// ctx ends the Save early; the next one then removes what it wrote.
func (s *Store) Save(ctx context.Context, name string, meta Meta, write func(io.Writer) error) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("snapshot name %q: use 1 to 64 letters, digits, _ and -", name)
	}
	r := ref{Prefix: fmt.Sprintf("%s%d.%s", namePrefix(name), meta.Position.Sequence, uuid.NewString()[:8])}
	w := &partWriter{ctx: ctx, store: s, ref: r, buf: make([]byte, 0, s.partSize)}
	if err := write(w); err != nil {
		return fmt.Errorf("saving a snapshot of %s: %w", name, err)
	}
	if err := w.flush(); err != nil {
		return fmt.Errorf("saving a snapshot of %s: %w", name, err)
	}
	table, err := json.Marshal(manifest{Version: formatVersion, Meta: meta, Parts: w.parts})
	if err != nil {
		return fmt.Errorf("saving a snapshot of %s: %w", name, err)
	}
	if r.SHA256, err = s.put(ctx, r.manifest(), table); err != nil {
		return fmt.Errorf("saving the manifest of a snapshot of %s: %w", name, err)
	}
	r.Seal = s.opts.Seal.Snapshot(name, r.SHA256)
	// A crash up to here leaves garbage. Once it is in the pointer the snapshot counts.
	kept, err := s.point(ctx, name, r)
	if err != nil {
		return err
	}
	if err := s.clean(ctx, name, kept, meta.Position.Sequence); err != nil {
		s.opts.Logger.Warn("old snapshots not removed; the next save retries", "name", name, "err", err)
	}
	return nil
}

func namePrefix(name string) string { return "snap/" + name + "/" }

// point adds a snapshot at the front of the pointer. Another owner may do so at the same time: then both are kept, as far
// as there is room.
func (s *Store) point(ctx context.Context, name string, r ref) ([]ref, error) {
	for {
		p, revision, err := s.readPointer(ctx, name)
		if err != nil {
			return nil, err
		}
		refs := append([]ref{r}, p.Snapshots...)
		refs = refs[:min(len(refs), keep)]
		value, err := json.Marshal(pointer{Version: formatVersion, Snapshots: refs})
		if err != nil {
			return nil, err
		}
		if revision == 0 {
			_, err = s.kv.Create(ctx, pointerKey(name), value)
		} else {
			_, err = s.kv.Update(ctx, pointerKey(name), value, revision)
		}
		if err == nil {
			return refs, nil
		}
		if !isConflict(err) || ctx.Err() != nil {
			return nil, fmt.Errorf("pointing to the new snapshot of %s: %w", name, err)
		}
		if err := natsx.Pause(ctx, 10*time.Millisecond); err != nil { // a lagging replica may answer the read
			return nil, err
		}
	}
}

func isConflict(err error) bool {
	return errors.Is(err, jetstream.ErrKeyExists) || natsx.IsWrongSequence(err)
}

// put stores one object, and retries when the server is busy; a failed attempt's chunks are purged by nats.go. It returns the
// hash that nats.go stores with it.
func (s *Store) put(ctx context.Context, name string, data []byte) (sum string, err error) {
	for try := 1; ; try++ {
		attempt, cancel := context.WithTimeout(ctx, partWait)
		info, err := s.obj.Put(attempt, jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkSize}},
			&pacedReader{ctx: attempt, r: bytes.NewReader(data), rest: s.rest})
		cancel()
		if err == nil {
			return sumOf(info)
		}
		if try == partTries || ctx.Err() != nil {
			return "", err
		}
		if err := natsx.Pause(ctx, tryPause); err != nil {
			return "", err
		}
	}
}

// partWriter cuts what is written into parts and stores each when it is full.
type partWriter struct {
	ctx   context.Context
	store *Store
	ref   ref
	buf   []byte
	parts []part
}

func (w *partWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		room := cap(w.buf) - len(w.buf)
		take := min(room, len(b))
		w.buf = append(w.buf, b[:take]...)
		b = b[take:]
		if len(w.buf) == cap(w.buf) {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (w *partWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	sum, err := w.store.put(w.ctx, w.ref.part(len(w.parts)), w.buf)
	if err != nil {
		return fmt.Errorf("part %d: %w", len(w.parts), err)
	}
	w.parts = append(w.parts, part{Size: int64(len(w.buf)), SHA256: sum})
	w.buf = w.buf[:0]
	return nil
}

// pacedReader pauses before each chunk, so that the disk can write events, and before the end: nats.go leaks a goroutine
// when a Put is over before that goroutine first ran.
type pacedReader struct {
	ctx  context.Context
	r    io.Reader
	rest func(context.Context) error
}

func (p *pacedReader) Read(b []byte) (int, error) {
	if err := p.rest(p.ctx); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}

// belongs reports whether an object is part of one of the snapshots.
func belongs(object string, refs []ref) bool {
	for _, r := range refs {
		if strings.HasPrefix(object, r.Prefix+"/") {
			return true
		}
	}
	return false
}
