package snapstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"
)

// errDamaged is the kind of everything that is wrong with a snapshot itself, as against the server not answering.
var errDamaged = errors.New("snapshot damaged")

// Load reads the newest snapshot of a name that is whole and accepted. ok is false where there is none: fold the log
// from its beginning.
//
// accept judges the meta first: return an error for an unknown format, and for a position that is not a place in the log
// any more. read gets the content, of which every byte has been checked against its hash when it arrives; it must start
// from empty state each time it is called, since a snapshot that turns out to be damaged half way is followed by an
// older one. What read returns an error for, and content it does not read to its end, counts as damaged.
//
// A snapshot not used is logged once, with the reason. err is only ever about the server or ctx.
func (s *Store) Load(ctx context.Context, name string, accept func(Meta) error, read func(io.Reader) error) (meta Meta, ok bool, err error) {
	p, _, err := s.readPointer(ctx, name)
	if err != nil {
		return Meta{}, false, err
	}
	for _, r := range p.Snapshots {
		meta, err := s.load(ctx, r, accept, read)
		if err == nil {
			return meta, true, nil
		}
		if ctx.Err() != nil {
			return Meta{}, false, ctx.Err()
		}
		s.opts.Logger.Warn("snapshot not used, going on with an older one or with the whole log", "name", name, "snapshot", r.Prefix, "err", err)
	}
	return Meta{}, false, nil
}

func (s *Store) load(ctx context.Context, r ref, accept func(Meta) error, read func(io.Reader) error) (Meta, error) {
	table, err := s.get(ctx, r.manifest(), -1, r.SHA256)
	if err != nil {
		return Meta{}, fmt.Errorf("manifest: %w", err)
	}
	var m manifest
	if err := json.Unmarshal(table, &m); err != nil {
		return Meta{}, fmt.Errorf("manifest: %w: %w", errDamaged, err)
	}
	if m.Version != formatVersion {
		return Meta{}, fmt.Errorf("manifest has version %d, this program knows %d", m.Version, formatVersion)
	}
	if err := accept(m.Meta); err != nil {
		return Meta{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	parts := &partReader{ctx: ctx, store: s, ref: r, left: m.Parts}
	defer parts.close()
	defer cancel()
	if err := read(parts); err != nil {
		return Meta{}, err
	}
	if parts.err != nil && parts.err != io.EOF { // read passed over it
		return Meta{}, parts.err
	}
	if parts.rest() {
		return Meta{}, fmt.Errorf("%w: content goes on behind what was read", errDamaged)
	}
	return m.Meta, nil
}

// get reads one object and checks size (-1 = any) and hash.
func (s *Store) get(ctx context.Context, name string, size int64, sum string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, partWait)
	defer cancel()
	info, err := s.obj.GetInfo(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fmt.Errorf("%w: %s is missing", errDamaged, name)
	}
	if err != nil {
		return nil, err
	}
	if size >= 0 && info.Size != uint64(size) || info.Size > MaxPartSize {
		return nil, fmt.Errorf("%w: %s has %d bytes, expected %d", errDamaged, name, info.Size, size)
	}
	// nats.go would wait for chunks that are not there until ctx ends; count them first.
	if err := s.complete(ctx, info); err != nil {
		return nil, err
	}
	object, err := s.obj.Get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	data := make([]byte, info.Size) // GetBytes grows into it, which takes longer than the reading
	_, err = io.ReadFull(object, data)
	if err = errors.Join(err, object.Close()); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if hash(data) != sum {
		return nil, fmt.Errorf("%w: %s has another hash than recorded", errDamaged, name)
	}
	return data, nil
}

func (s *Store) complete(ctx context.Context, info *jetstream.ObjectInfo) error {
	if info.Chunks == 0 {
		return nil
	}
	stream, err := s.js.Stream(ctx, snapStream)
	if err != nil {
		return err
	}
	subject := chunkPrefix + info.NUID
	state, err := stream.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return err
	}
	if have := state.State.Subjects[subject]; have != uint64(info.Chunks) {
		return fmt.Errorf("%w: %s has %d of its %d chunks", errDamaged, info.Name, have, info.Chunks)
	}
	return nil
}

// partReader gives out the parts one after the other, each checked before its first byte is given. While one is read the
// next is fetched.
type partReader struct {
	ctx   context.Context
	store *Store
	ref   ref
	next  int
	left  []part
	ahead chan fetched // the part that is being fetched, nil = none
	buf   []byte
	err   error
}

type fetched struct {
	data []byte
	err  error
}

// fetch starts to get the next part, if there is one.
func (p *partReader) fetch() {
	p.ahead = nil
	if len(p.left) == 0 {
		return
	}
	want, name, ahead := p.left[0], p.ref.part(p.next), make(chan fetched, 1)
	p.left, p.next, p.ahead = p.left[1:], p.next+1, ahead
	go func() {
		data, err := p.store.get(p.ctx, name, want.Size, want.SHA256)
		ahead <- fetched{data, err}
	}()
}

// close waits for what is being fetched; the caller has ended ctx.
func (p *partReader) close() {
	if p.ahead != nil {
		<-p.ahead
	}
}

// rest reports whether there is content that was not read.
func (p *partReader) rest() bool { return len(p.buf) > 0 || p.ahead != nil || len(p.left) > 0 }

func (p *partReader) Read(b []byte) (int, error) {
	for len(p.buf) == 0 && p.err == nil {
		if p.ahead == nil {
			p.fetch() // the first
		}
		if p.ahead == nil {
			p.err = io.EOF
			break
		}
		got := <-p.ahead
		p.buf, p.err = got.data, got.err
		p.fetch()
	}
	if len(p.buf) == 0 {
		return 0, p.err
	}
	n := copy(b, p.buf)
	p.buf = p.buf[n:]
	return n, nil
}
