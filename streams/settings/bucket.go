package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// Bucket is the KV bucket of the changes, and Stream its stream.
	Bucket = topology.SettingsBucket
	Stream = topology.SettingsStream

	subjectPrefix = "$KV." + Bucket + "."
	// maxMessage bounds a change, those of newer versions included.
	maxMessage = 16 << 10
)

// streamConfig is the configuration of a KV bucket, but one that only grows: a key takes one message, and none is removed.
// nats.go would allow a key to be replaced and everything to be purged. Direct gets are off: a lagging replica may answer
// them.
func streamConfig(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        Stream,
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
		return fmt.Errorf("making bucket %s: %w", Bucket, err)
	}
	return nil
}

// lastRevision requests from the bucket's leader the revision of the newest change, 0 = there is none. The error is
// [jetstream.ErrStreamNotFound] where there is no bucket.
func lastRevision(ctx context.Context, js jetstream.JetStream) (uint64, error) {
	request := fmt.Appendf(nil, `{"last_by_subj":%q}`, subjectPrefix+keyPrefix+">")
	msg, err := js.Conn().RequestWithContext(ctx, topology.API(js, "STREAM.MSG.GET."+Stream), request)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Sequence uint64 `json:"seq"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return 0, err
	}
	switch e := answer.Error; {
	case e == nil:
		return answer.Message.Sequence, nil
	case e.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return 0, nil
	case e.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return 0, jetstream.ErrStreamNotFound
	default:
		return 0, e
	}
}

const (
	// attempt bounds the first request of an exchange with the server: one sent during an election is never answered.
	attempt = 2 * time.Second
	// retryPause is the pause before a retry.
	retryPause = 100 * time.Millisecond
)

// final is an error that a retry does not resolve.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// retry calls f until it succeeds, fails for good, or ctx ends.
func retry(ctx context.Context, f func(context.Context) error) error {
	tick := time.NewTicker(retryPause)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if f, ok := errors.AsType[final](err); ok {
			return f.error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; the last try: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
