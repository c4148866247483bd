package snapstore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	snapStream  = topology.SnapStream
	chunkPrefix = "$O." + topology.SnapBucket + ".C."
	metaPrefix  = "$O." + topology.SnapBucket + ".M."
)

// purgePauses is how many pauses between chunks are made before each purge of an object.
const purgePauses = 4

// clean removes every object of a name that no kept snapshot has, except one that looks like another owner's running
// Save: newer than this one in the log, and young. It purges: the object store's own Delete would leave a marker per object
// for ever.
//
// The list ends with the last message that was pending when it started. If another server purges that one, it
// would wait for ever.
func (s *Store) clean(ctx context.Context, name string, kept []ref, sequence uint64) error {
	ctx, cancel := context.WithTimeout(ctx, cleanWait)
	defer cancel()
	stream, err := s.js.Stream(ctx, snapStream)
	if err != nil {
		return err
	}
	objects, err := s.obj.List(ctx, jetstream.ListObjectsShowDeleted())
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return fmt.Errorf("listing snapshots: %w", err)
	}
	living := map[string]bool{}
	for _, o := range objects {
		living[o.NUID] = true
		if !strings.HasPrefix(o.Name, namePrefix(name)) || belongs(o.Name, kept) {
			continue
		}
		if sequenceOf(o.Name, name) > sequence && time.Since(o.ModTime) < s.orphanAge {
			continue
		}
		// Each purge removes some MiB from the disk that events are written to: without pauses it would block them.
		for range purgePauses {
			if err := s.rest(ctx); err != nil {
				return err
			}
		}
		if err := s.purge(ctx, stream, o); err != nil {
			return err
		}
	}
	if s.swept.Load() {
		return nil
	}
	if err := s.sweep(ctx, stream, living); err != nil {
		return err
	}
	s.swept.Store(true)
	return nil
}

// purge removes the chunks first: a crash between the two leaves an object that cannot be read, and can be purged.
func (s *Store) purge(ctx context.Context, stream jetstream.Stream, o *jetstream.ObjectInfo) error {
	if o.NUID != "" {
		if err := stream.Purge(ctx, jetstream.WithPurgeSubject(chunkPrefix+o.NUID)); err != nil {
			return fmt.Errorf("removing %s: %w", o.Name, err)
		}
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSubject(metaPrefix+base64.URLEncoding.EncodeToString([]byte(o.Name)))); err != nil {
		return fmt.Errorf("removing %s: %w", o.Name, err)
	}
	return nil
}

// sweep removes chunks that belong to no object: a process died while it stored a part, and the object store does not list
// them. Young ones may be of a part that is being stored now. Once per process is enough.
func (s *Store) sweep(ctx context.Context, stream jetstream.Stream, living map[string]bool) error {
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(chunkPrefix+"*"))
	if err != nil {
		return fmt.Errorf("listing orphaned chunks: %w", err)
	}
	for subject := range info.State.Subjects {
		if living[strings.TrimPrefix(subject, chunkPrefix)] {
			continue
		}
		last, err := stream.GetLastMsgForSubject(ctx, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading orphaned chunks: %w", err)
		}
		if time.Since(last.Time) < s.orphanAge {
			continue
		}
		if err := stream.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return fmt.Errorf("removing orphaned chunks: %w", err)
		}
	}
	return nil
}

// sequenceOf reads the sequence from an object's name, 0 if there is none.
func sequenceOf(object, name string) uint64 {
	number, _, _ := strings.Cut(strings.TrimPrefix(object, namePrefix(name)), ".")
	n, _ := strconv.ParseUint(number, 10, 64)
	return n
}
