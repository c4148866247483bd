package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// ensureParallel is how many streams are checked or made at once; a cluster's meta leader queues the rest anyway.
const ensureParallel = 8

// Ensure creates the log, if there is none, and returns its identity. Any number of servers may call it at once: the one that
// creates the key in StateBucket chooses the UUID, the others read it and continue with it (or are refused, if they requested
// other lanes or have another code key).
//
// Refusals are ErrRefused: another number of lanes, another code key, a newer format, streams of another log, a lost
// stream. Differences that do not make the log another one are listed in Log.Drift. Any other error means that the server
// does not answer; ctx bounds how long that is retried.
func Ensure(ctx context.Context, js jetstream.JetStream, spec Spec) (Log, error) {
	if err := spec.validate(); err != nil {
		return Log{}, err
	}
	spec = spec.withDefaults()
	if err := CheckServer(js.Conn().ConnectedServerVersion()); err != nil {
		return Log{}, refuse("%v", err)
	}
	if have := js.Conn().MaxPayload(); have > 0 && have < MinMaxPayload {
		return Log{}, refuse("the NATS server allows messages of %d bytes, the log needs %d; set max_payload: 1MB in its configuration", have, MinMaxPayload)
	}

	want := stateConfig(spec.Replicas)
	have, err := ensureBeside(ctx, js, want)
	if err != nil {
		return Log{}, err
	}
	id, revision, err := claimIdentity(ctx, js, spec)
	if err != nil {
		return Log{}, err
	}
	if err := id.check(spec); err != nil {
		return Log{}, err
	}

	log := id.log()
	log.Drift = drift(want, have)
	streamDrift, err := ensureStreams(ctx, js, id, spec)
	if err != nil {
		return Log{}, err
	}
	log.Drift = append(log.Drift, streamDrift...)

	for _, want := range []jetstream.StreamConfig{LeaseConfig(spec.Replicas), jobsConfig(spec.Replicas), onceConfig(spec.Replicas), optOutConfig(spec.Replicas), snapConfig(spec.Replicas), Access.Config(spec.Replicas), auditStream(id, spec), outStream(id, spec)} {
		have, err := ensureBeside(ctx, js, want)
		if err != nil {
			return Log{}, err
		}
		log.Drift = append(log.Drift, drift(want, have)...)
	}

	// A crash before this leaves the identity incomplete, and the next Ensure finds every stream in place.
	if !id.Complete {
		if err := markComplete(ctx, js, id, revision); err != nil {
			return Log{}, err
		}
	}
	return log, nil
}

func (s Spec) validate() error {
	switch {
	case s.Lanes < 0 || s.Lanes > MaxLanes:
		return refuse("lanes is %d, expected 1 to %d", s.Lanes, MaxLanes)
	case s.Replicas < 0 || s.Replicas > 5:
		return refuse("replicas is %d, expected 1, 3 or 5", s.Replicas)
	case s.CmdMaxBytes < 0:
		return refuse("the command streams' size limit is %d, expected a positive number of bytes", s.CmdMaxBytes)
	}
	return nil
}

// claimIdentity reads the log's identity or creates it. It retries because losing the creation means that another server has
// chosen.
func claimIdentity(ctx context.Context, js jetstream.JetStream, spec Spec) (id identity, revision uint64, err error) {
	err = natsx.Retry(ctx, func(ctx context.Context) error {
		var found bool
		if id, revision, found, err = readIdentity(ctx, js); err != nil || found {
			return err
		}
		if id, found, err = adopt(ctx, js); err != nil {
			return err
		}
		if !found {
			if id, err = newIdentity(spec); err != nil {
				return err
			}
		}
		// From here on the log exists under this UUID, also after a crash.
		if revision, err = writeIdentity(ctx, js, id, revision); natsx.IsWrongSequence(err) {
			return natsx.ErrAgain
		}
		return err
	})
	if err != nil {
		return identity{}, 0, fmt.Errorf("reading or creating the log's identity: %w", err)
	}
	return id, revision, nil
}

func newIdentity(spec Spec) (identity, error) {
	if spec.KeyFingerprint == "" {
		return identity{}, refuse("there is no log yet and no code key was given to create one; start a server with the lanes role first")
	}
	name, err := uuid.NewRandom()
	if err != nil {
		return identity{}, err
	}
	return identity{
		UUID: name.String(), Lanes: cmp.Or(spec.Lanes, DefaultLanes), KeyFingerprint: spec.KeyFingerprint, Format: Format,
		Created: time.Now().UTC().Truncate(time.Second),
	}, nil
}

func markComplete(ctx context.Context, js jetstream.JetStream, id identity, revision uint64) error {
	id.Complete = true
	err := natsx.Retry(ctx, func(ctx context.Context) error {
		_, err := writeIdentity(ctx, js, id, revision)
		if natsx.IsWrongSequence(err) {
			return nil // another server was first, with the same identity
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("marking the log complete: %w", err)
	}
	return nil
}

// ensureStreams checks every lane's streams and creates those missing from a log still being created.
func ensureStreams(ctx context.Context, js jetstream.JetStream, id identity, spec Spec) (drifts []string, err error) {
	var (
		mu       sync.Mutex
		lost     []string
		group, g = errgroup.WithContext(ctx)
	)
	group.SetLimit(ensureParallel)
	for lane := range id.Lanes {
		for _, want := range streamConfigs(lane, id, spec) {
			group.Go(func() error {
				have, missing, err := ensureStream(g, js, want, id)
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				if missing {
					lost = append(lost, want.Name)
					return nil
				}
				drifts = append(drifts, drift(want, have)...)
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		return nil, refuse("log %s has lost %s: an empty stream in its place would lose claimed codes; restore it from a backup (or, to start a new log, remove all SCRIP_ streams and buckets)",
			id.UUID, strings.Join(lost, ", "))
	}
	slices.Sort(drifts)
	return drifts, nil
}

// ensureStream checks one stream, or creates it. missing is true if it does not exist and must not be created. Nothing
// of an existing stream is changed.
func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, id identity) (have jetstream.StreamConfig, missing bool, err error) {
	have, missing, err = findOrCreate(ctx, js, want, !id.Complete)
	switch {
	case err != nil:
		return have, false, notEnsured(want, err)
	case missing:
		return have, true, nil
	}
	on, err := identityOf(want.Name, have.Metadata)
	if err != nil {
		return have, false, err
	}
	if !on.same(id) {
		if on.Format > Format {
			return have, false, on.check(Spec{})
		}
		return have, false, refuse("stream %s belongs to log %s (%d lanes, key %s), the others to log %s (%d lanes, key %s); restore all streams from one backup, or, if the streams are right and only bucket %s is not, delete its key %q",
			want.Name, on.UUID, on.Lanes, on.KeyFingerprint, id.UUID, id.Lanes, id.KeyFingerprint, StateBucket, identityKey)
	}
	return have, false, nil
}

// ensureBeside finds a stream that holds nothing of the lanes, or creates it. One that was lost is empty then; no key is known to
// a server that starts, and running servers keep theirs.
func ensureBeside(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (jetstream.StreamConfig, error) {
	have, _, err := findOrCreate(ctx, js, want, true)
	if err != nil {
		return have, notEnsured(want, err)
	}
	return have, nil
}

// notEnsured is the error of a stream that is not there.
func notEnsured(want jetstream.StreamConfig, err error) error {
	if natsx.HasCode(err, natsx.CodeNoStorage) {
		return fmt.Errorf("stream %s needs %d bytes reserved and the server has less storage left; free disk space or give the command streams a lower limit: %w", want.Name, want.MaxBytes, err)
	}
	return fmt.Errorf("ensuring stream %s: %w", want.Name, err)
}

// findOrCreate returns the configuration of a stream, which it creates if there is none and it may; else missing is true.
func findOrCreate(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, create bool) (have jetstream.StreamConfig, missing bool, err error) {
	err = natsx.Retry(ctx, func(ctx context.Context) error {
		stream, err := js.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if missing = !create; missing {
				return nil
			}
			stream, err = js.CreateStream(ctx, want)
			if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
				return natsx.ErrAgain // another server has made it with other settings: compare
			}
		}
		if err == nil {
			have, missing = stream.CachedInfo().Config, false
		}
		return err
	})
	return have, missing, err
}

// FindOrMake finds a stream that Ensure does not make, or makes it with as many copies as the log has; 1 where there is no log.
func FindOrMake(ctx context.Context, js jetstream.JetStream, config func(replicas int) jetstream.StreamConfig) (jetstream.Stream, error) {
	name, replicas := config(1).Name, 1
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		state, missing := js.Stream(ctx, StateStream)
		if missing == nil {
			replicas = max(1, state.CachedInfo().Config.Replicas)
		} else if !errors.Is(missing, jetstream.ErrStreamNotFound) {
			return nil, fmt.Errorf("reading how many copies the log has: %w", missing)
		}
		if stream, err = js.CreateStream(ctx, config(replicas)); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was first
			stream, err = js.Stream(ctx, name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("finding or making stream %s: %w", name, err)
	}
	return stream, nil
}

// TestedServer is the release of nats-server that scrip is tested with.
const TestedServer = "2.15"

// The oldest nats-server that has what the log needs: a bucket's markers with a TTL, for leases.
const minServerMajor, minServerMinor = 2, 11

// CheckServer refuses the version of a nats-server that is too old. One that is not known, or not understood, is accepted:
// what is missing then fails where it is used.
func CheckServer(version string) error {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n < 2 {
		return nil
	}
	if major > minServerMajor || major == minServerMajor && minor >= minServerMinor {
		return nil
	}
	return fmt.Errorf("the NATS server has version %s; the log needs %d.%d or later, and is tested with %s: upgrade it", version, minServerMajor, minServerMinor, TestedServer)
}
