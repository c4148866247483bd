package snapstore

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// errDamaged is the kind of every error of a snapshot itself, in contrast to a server that does not answer.
var errDamaged = errors.New("snapshot damaged")

// errMissing is the errDamaged of an object that the stream's leader does not have.
var errMissing = fmt.Errorf("%w: an object is missing", errDamaged)

const (
	// missingFor is how long, in one Load, an object that is missing from a replicated store is searched again. A leader that
	// was cut off, or replaced a moment ago, can answer from a copy that lags. On one copy an answer is always valid.
	missingFor   = 5 * time.Second
	missingPause = 250 * time.Millisecond
)

// Load reads the newest snapshot of a name that is sealed, complete and accepted. ok is false if there is none: fold the log
// from its first message.
//
// accept checks the meta first: it returns an error for an unknown format, and for a position that is no longer valid in the
// log. read gets the content, of which every byte has been checked against its hash; it must start from empty state each
// time it is called, since after a snapshot that turns out to be damaged half way an older one is read. If read returns an
// error, or does not read the content to its end, the snapshot counts as damaged.
//
// An object that a replicated store does not have is searched again for 5 s, each time after reading the pointer again: another
// owner may have replaced the snapshot.
//
// A snapshot not used is logged once, with the reason. An error that means only that the server, or a stream's leader, could
// not be reached now ([natsx.Transient]) is returned, wherever it came from, accept and read included: retry, the snapshot
// is not the cause. Other errors are ctx's.
func (s *Store) Load(ctx context.Context, name string, accept func(Meta) error, read func(io.Reader) error) (meta Meta, ok bool, err error) {
	until := time.Now().Add(missingFor)
	for {
		meta, ok, err := s.newest(ctx, name, time.Now().Before(until), accept, read)
		if !errors.Is(err, errMissing) {
			return meta, ok, err
		}
		if err := natsx.Pause(ctx, missingPause); err != nil {
			return Meta{}, false, err
		}
	}
}

// newest is one attempt of Load. With again, an object missing from a replicated store ends it with errMissing.
func (s *Store) newest(ctx context.Context, name string, again bool, accept func(Meta) error, read func(io.Reader) error) (meta Meta, ok bool, err error) {
	p, _, err := s.readPointer(ctx, name)
	if err != nil {
		return Meta{}, false, err
	}
	for _, r := range p.Snapshots {
		meta, err := s.load(ctx, name, r, accept, read)
		if err == nil {
			return meta, true, nil
		}
		if again && errors.Is(err, errMissing) {
			looking, done := context.WithTimeout(ctx, pointerFor)
			info, unknown := natsx.Info(looking, s.js, snapStream, "")
			done()
			switch {
			case unknown != nil:
				return Meta{}, false, fmt.Errorf("reading snapshot %s: %w", r.Prefix, unknown)
			case info.Config.Replicas > 1:
				return Meta{}, false, err
			}
		}
		if ctx.Err() != nil {
			return Meta{}, false, ctx.Err()
		}
		if natsx.Transient(err) {
			return Meta{}, false, fmt.Errorf("reading snapshot %s: %w", r.Prefix, err)
		}
		s.opts.Logger.Warn("snapshot not used, continuing with an older one or with the whole log", "name", name, "snapshot", r.Prefix, "err", err)
	}
	return Meta{}, false, nil
}

func (s *Store) load(ctx context.Context, name string, r ref, accept func(Meta) error, read func(io.Reader) error) (Meta, error) {
	if !s.opts.Seal.ValidSnapshot(name, r.SHA256, r.Seal) {
		return Meta{}, errUnsealed
	}
	table, err := s.get(ctx, r.manifest(), -1, r.SHA256)
	if err != nil {
		return Meta{}, fmt.Errorf("manifest: %w", err)
	}
	var m manifest
	if err := json.Unmarshal(table, &m); err != nil {
		return Meta{}, fmt.Errorf("manifest: %w: %w", errDamaged, err)
	}
	if m.Version != formatVersion {
		return Meta{}, fmt.Errorf("the manifest has format %d, this program knows %d; use the newer scrip that wrote it", m.Version, formatVersion)
	}
	if err := accept(m.Meta); err != nil {
		return Meta{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	parts := &partReader{ctx: ctx, store: s, ref: r, left: m.Parts}
	defer parts.close()
	defer cancel()
	err = read(parts)
	if parts.err != nil && parts.err != io.EOF { // also if read returned another error
		return Meta{}, parts.err
	}
	if err != nil {
		return Meta{}, err
	}
	if parts.rest() {
		return Meta{}, fmt.Errorf("%w: there is more content than was read", errDamaged)
	}
	return m.Meta, nil
}

// get reads one object and checks size (-1 = any) and hash, which is computed once: by nats.go. A read without an answer is
// retried, for a minute.
func (s *Store) get(ctx context.Context, name string, size int64, sum string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, partWait)
	defer cancel()
	info, err := s.info(ctx, name)
	if err != nil {
		return nil, err
	}
	if size >= 0 && info.Size != uint64(size) || info.Size > partSize {
		return nil, fmt.Errorf("%w: %s has %d bytes, expected %d", errDamaged, name, info.Size, size)
	}
	// nats.go would wait for missing chunks until ctx ends; count them first.
	if err := s.complete(ctx, info); err != nil {
		return nil, err
	}
	for wait := s.readFirst + readPerMiB*time.Duration(info.Size>>20); ; wait *= 2 {
		attempt, done := context.WithTimeout(ctx, wait)
		data, have, err := s.read(attempt, name, info.Size)
		done()
		switch {
		// A replica that lags may not know the object yet. Its leader does, and it is never written again.
		case err != nil && ctx.Err() == nil && (natsx.Transient(err) || errors.Is(err, jetstream.ErrObjectNotFound)):
			if err := natsx.Pause(ctx, readPause); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", name, err)
		case have != sum:
			return nil, fmt.Errorf("%w: %s has another hash than recorded", errDamaged, name)
		default:
			return data, nil
		}
	}
}

const (
	// readFirst, and readPerMiB for each MiB, bound the first attempt to read an object; each further one gets twice as
	// long. nats.go sends the request for its chunks once, and one sent during a leader election is never answered.
	readFirst  = 2 * time.Second
	readPerMiB = 125 * time.Millisecond
	readPause  = 50 * time.Millisecond
)

// read is one attempt. The sum is that of the data.
func (s *Store) read(ctx context.Context, name string, size uint64) (data []byte, sum string, err error) {
	object, err := s.obj.Get(ctx, name)
	if err != nil {
		return nil, "", err
	}
	data = make([]byte, size, size+1) // GetBytes grows into it, which takes longer than the reading
	if _, err = io.ReadFull(object, data); err == nil {
		// At the end nats.go compares the hash of what it read with the object's.
		if _, err = object.Read(data[size : size+1]); err == io.EOF {
			err = nil
		} else if err == nil || errors.Is(err, jetstream.ErrDigestMismatch) {
			err = fmt.Errorf("%w: its content is not the one that was stored", errDamaged)
		}
	}
	if err == nil {
		var info *jetstream.ObjectInfo
		if info, err = object.Info(); err == nil {
			sum, err = sumOf(info)
		}
	}
	return data, sum, errors.Join(err, object.Close())
}

// info reads an object's description from the leader: an object that a lagging replica does not know is not missing.
func (s *Store) info(ctx context.Context, name string) (*jetstream.ObjectInfo, error) {
	msg, ok, err := natsx.LastMessage(ctx, s.js, snapStream, metaPrefix+base64.URLEncoding.EncodeToString([]byte(name)))
	if err != nil {
		return nil, fmt.Errorf("reading the description of %s: %w", name, err)
	}
	info := &jetstream.ObjectInfo{}
	if !ok {
		return nil, fmt.Errorf("%w: %s", errMissing, name)
	}
	if err := json.Unmarshal(msg.Data, info); err != nil {
		return nil, fmt.Errorf("%w: description of %s: %w", errDamaged, name, err)
	}
	if info.Deleted {
		return nil, fmt.Errorf("%w: %s was deleted", errDamaged, name)
	}
	return info, nil
}

// complete counts an object's chunks at the leader.
func (s *Store) complete(ctx context.Context, info *jetstream.ObjectInfo) error {
	if info.Chunks == 0 {
		return nil
	}
	subject := chunkPrefix + info.NUID
	stream, err := natsx.Info(ctx, s.js, snapStream, subject)
	if err != nil {
		return fmt.Errorf("counting the chunks of %s: %w", info.Name, err)
	}
	if have := stream.State.Subjects[subject]; have != uint64(info.Chunks) {
		return fmt.Errorf("%w: %s has %d of its %d chunks", errMissing, info.Name, have, info.Chunks)
	}
	return nil
}

// partReader returns the parts one after the other, each checked before its first byte is returned. While one is read the
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

// close waits for the fetch in progress; the caller has ended ctx.
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
