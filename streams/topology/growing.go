package topology

import (
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// GrowingBucket is a KV bucket that only grows: a key takes one message, and none is removed. See package registry.
type GrowingBucket struct {
	Bucket      string
	Description string
}

// The growing buckets.
var (
	// Settings is the history of the run-time settings, and the skip list.
	Settings = GrowingBucket{SettingsBucket, "scrip: run-time settings, one key for each change ever made"}
	// Access is the history of the keys.
	Access = GrowingBucket{AccessBucket, "scrip: keys of users, one key for each change ever made; hashes only"}
	// Webhooks is the history of the webhooks.
	Webhooks = GrowingBucket{WebhooksBucket, "scrip: webhooks, one key for each change ever made; secrets are sealed"}
)

// MaxGrowing bounds a change in bytes, with its headers, those of newer versions included.
const MaxGrowing = 16 << 10

// Stream is the stream of the bucket.
func (b GrowingBucket) Stream() string { return "KV_" + b.Bucket }

// Subject is the subject of a key.
func (b GrowingBucket) Subject(key string) string { return "$KV." + b.Bucket + "." + key }

// Key is the key of a subject as Subject writes it.
func (b GrowingBucket) Key(subject string) (key string, ok bool) {
	return strings.CutPrefix(subject, b.Subject(""))
}

// Config is the configuration of the bucket's stream. nats.go would allow a key to be replaced and everything to be purged.
// Direct gets are off: a lagging replica may answer them.
func (b GrowingBucket) Config(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        b.Stream(),
		Description: b.Description,
		Subjects:    []string{b.Subject(">")},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		Compression: jetstream.NoCompression,
		Replicas:    replicas,

		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: MaxGrowing, MaxConsumers: -1, Duplicates: defaultWindow,
		DenyDelete: true, DenyPurge: true,
	}
}

// GrowsOnly reports whether an existing stream keeps all messages.
func GrowsOnly(have jetstream.StreamConfig) bool {
	return have.DenyDelete && have.DenyPurge && !have.AllowRollup && !have.AllowMsgTTL && have.MaxAge == 0 && have.MaxMsgs <= 0 && have.MaxBytes <= 0 &&
		(have.MaxMsgsPerSubject <= 0 || have.Discard == jetstream.DiscardNew && have.DiscardNewPerSubject)
}
