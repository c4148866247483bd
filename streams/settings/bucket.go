package settings

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	subjectPrefix = "$KV." + topology.SettingsBucket + "."
	// maxMessage bounds a change, those of newer versions included.
	maxMessage = 16 << 10
)

// streamConfig is the configuration of a KV bucket, but one that only grows: a key takes one message, and none is removed.
// nats.go would allow a key to be replaced and everything to be purged. Direct gets are off: a lagging replica may answer
// them.
func streamConfig(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        topology.SettingsStream,
		Description: "scrip: run-time settings, one key for each change ever made",
		Subjects:    []string{subjectPrefix + ">"},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		Compression: jetstream.NoCompression,
		Replicas:    replicas,

		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: maxMessage, MaxConsumers: -1,
		DenyDelete: true, DenyPurge: true,
	}
}

// growsOnly reports whether an existing bucket keeps all messages.
func growsOnly(have jetstream.StreamConfig) bool {
	return have.DenyDelete && have.DenyPurge && !have.AllowRollup && !have.AllowMsgTTL && have.MaxAge == 0 && have.MaxMsgs <= 0 && have.MaxBytes <= 0 &&
		(have.MaxMsgsPerSubject <= 0 || have.Discard == jetstream.DiscardNew && have.DiscardNewPerSubject)
}

// makeBucket makes the bucket, with replicas copies, 0 = as many as the log has. It may exist already.
func makeBucket(ctx context.Context, js jetstream.JetStream, replicas int) error {
	if replicas == 0 {
		replicas = 1
		state, err := js.Stream(ctx, topology.StateStream)
		switch {
		case err == nil:
			replicas = max(1, state.CachedInfo().Config.Replicas)
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("reading how many copies the log has: %w", err)
		}
	}
	_, err := js.CreateStream(ctx, streamConfig(replicas))
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("making bucket %s: %w", topology.SettingsBucket, err)
	}
	return nil
}

// bucket opens the bucket, and makes it if there is none.
func (s *Store) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := s.js.KeyValue(ctx, topology.SettingsBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		if err = makeBucket(ctx, s.js, s.opts.Replicas); err == nil {
			kv, err = s.js.KeyValue(ctx, topology.SettingsBucket)
		}
	}
	return kv, err
}

// newest reads the revision of the newest change from the bucket's leader, within attempt; 0 = there is none. The error is
// [jetstream.ErrStreamNotFound] where there is no bucket.
func newest(ctx context.Context, js jetstream.JetStream) (uint64, error) {
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	m, _, err := topology.LastMessage(ctx, js, topology.SettingsStream, subjectPrefix+keyPrefix+">")
	return m.Sequence, err
}

const (
	// attempt bounds an exchange with the server: a request sent during an election is never answered.
	attempt = 2 * time.Second
	// retryPause is the pause before a retry.
	retryPause = 100 * time.Millisecond
)

// retry calls f until it succeeds or ctx ends.
func retry(ctx context.Context, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if topology.Pause(ctx, retryPause) != nil {
			return fmt.Errorf("%w; the last try: %w", context.Cause(ctx), err)
		}
	}
}
