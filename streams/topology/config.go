package topology

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// DefaultLanes is the number of lanes of a new log by default.
	DefaultLanes = 4
	// MaxLanes bounds the number of lanes: each costs three streams, and on a cluster three raft groups.
	MaxLanes = 1024
	// DefaultCmdMaxBytes bounds a command stream; when it is full publishes are rejected (not_durable).
	DefaultCmdMaxBytes = 1 << 30

	// evtMaxMsgSize bounds a message of an event or reminder stream. A step stays under 512 KiB.
	evtMaxMsgSize = 1 << 20
	// MinMaxPayload is the least max_payload the server must allow: a whole step with its headers, and a command message
	// far over its limit of 256 KiB, which must be answered `invalid` instead of failing in the client.
	MinMaxPayload = 1 << 20
	// dedupeWindow is the smallest the server allows. The domain deduplicates by command ids; the server's memory of message
	// ids would cost 115 bytes each without use.
	dedupeWindow = 100 * time.Millisecond
	// defaultWindow is the server's.
	defaultWindow = 2 * time.Minute
	// leaseMarkerTTL is how long the marker of an expired or released lease stays; it must outlive a reconnect of a
	// watcher.
	leaseMarkerTTL = time.Minute
)

// Spec is the log that the caller wants.
type Spec struct {
	// Lanes is the number of lanes. 0 takes the log's own, or DefaultLanes for a new log.
	Lanes int
	// Replicas of every stream and bucket, 1 to 5. Defaults to 1.
	Replicas int
	// KeyFingerprint identifies the code key. Required to create a log; empty on an existing log = not checked (for
	// servers that never see a code).
	KeyFingerprint string
	// CmdMaxBytes bounds each command stream. Defaults to DefaultCmdMaxBytes.
	CmdMaxBytes int64
}

func (s Spec) withDefaults() Spec {
	if s.Replicas == 0 {
		s.Replicas = 1
	}
	if s.CmdMaxBytes == 0 {
		s.CmdMaxBytes = DefaultCmdMaxBytes
	}
	return s
}

// Metadata keys that carry the log's identity on every stream.
const (
	metaLog     = "scrip_log"
	metaLanes   = "scrip_lanes"
	metaKey     = "scrip_key"
	metaFormat  = "scrip_format"
	metaCreated = "scrip_created"
)

// Metadata keys that a restore leaves. Both hold its UUID.
const (
	// MetaRestoring is on the state bucket's stream until a restore has finished: no server works on such a log.
	MetaRestoring = "scrip_restoring"
	// MetaRestored is on every stream that was restored from a backup, for good.
	MetaRestored = "scrip_restored"
)

func (id identity) metadata() map[string]string {
	return map[string]string{
		metaLog:     id.UUID,
		metaLanes:   strconv.Itoa(id.Lanes),
		metaKey:     id.KeyFingerprint,
		metaFormat:  strconv.Itoa(id.Format),
		metaCreated: id.Created.UTC().Format(time.RFC3339),
	}
}

// streamConfigs returns the streams of one lane, in any order.
func streamConfigs(lane int, id identity, spec Spec) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		keptStream(EvtStream(lane), Evt(lane), id, spec),
		keptStream(RmdStream(lane), Rmd(lane), id, spec),
		cmdStream(lane, id, spec),
	}
}

// keptStream is a stream with one writer that is kept for ever: no compression (S2 made restarts ten times slower), no
// limits, and no option by which a message could disappear or be replaced. Direct gets are off: a replica that lags may
// answer them, and every read of a single message here decides something.
func keptStream(name, subject string, id identity, spec Spec) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        name,
		Subjects:    []string{subject},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		Compression: jetstream.NoCompression,
		Discard:     jetstream.DiscardNew,
		MaxMsgs:     -1,
		MaxBytes:    -1,
		MaxMsgSize:  evtMaxMsgSize,
		Duplicates:  dedupeWindow,
		Replicas:    spec.Replicas,
		DenyDelete:  true,
		DenyPurge:   true,
		Metadata:    id.metadata(),
	}
}

// auditStream is what people did that makes no event. It is kept like events; every server writes to it.
func auditStream(id identity, spec Spec) jetstream.StreamConfig {
	return keptStream(AuditStream, AuditSubject, id, spec)
}

// outStream is kept like the reminders that it lets out.
func outStream(id identity, spec Spec) jetstream.StreamConfig {
	return keptStream(PushOutStream, PushOut, id, spec)
}

// cmdStream bounds commands by bytes and rejects new ones when full; it has no MaxAge, which would drop undecided commands.
// Its owner purges what events cover. MaxMsgSize is the server's max_payload: a message over the contract's limits gets an
// answer. DenyDelete keeps the sequence free of holes.
func cmdStream(lane int, id identity, spec Spec) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        CmdStream(lane),
		Subjects:    []string{LaneCmd(lane), LaneCmdFor(lane, "*"), LaneAdminFor(lane, "*"), LaneDue(lane), LaneShop(lane)},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		Compression: jetstream.NoCompression,
		Discard:     jetstream.DiscardNew,
		MaxMsgs:     -1,
		MaxBytes:    spec.CmdMaxBytes,
		MaxMsgSize:  -1,
		Duplicates:  dedupeWindow,
		Replicas:    spec.Replicas,
		DenyDelete:  true,
		Metadata:    id.metadata(),
	}
}

// bucketStream is the stream of a KV bucket that keeps one value of a key, as nats.go makes it.
func bucketStream(bucket, description string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: "KV_" + bucket, Description: description, Subjects: []string{"$KV." + bucket + ".>"},
		Storage: jetstream.FileStorage, Replicas: replicas, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew,
		Duplicates: defaultWindow, AllowRollup: true, DenyDelete: true, AllowDirect: true,
	}
}

func stateConfig(replicas int) jetstream.StreamConfig {
	return bucketStream(StateBucket, "scrip: the log's identity and snapshot pointers", replicas)
}

// LeaseConfig is exported for a tool that needs the bucket before there is a log.
func LeaseConfig(replicas int) jetstream.StreamConfig {
	c := bucketStream(LeaseBucket, "scrip: who works on what; a hint, the fence gives safety", replicas)
	c.AllowMsgTTL, c.SubjectDeleteMarkerTTL = true, leaseMarkerTTL
	return c
}

// The bounds of what keys can make grow. NATS reserves bytes on the disk, not messages.
const (
	// OnceBytes bounds OnceBucket. OnceShare is what one client may use of it at a server, for each time that values are kept.
	OnceBytes = 1 << 30
	OnceShare = 16 << 20
	// jobsBytes bounds JobsBucket.
	jobsBytes = 64 << 20
	// pushBytes bounds what push senders store: what waits, and what was given up.
	pushBytes = 256 << 20
	// mostOptOuts bounds the customers in OptOutBucket, removed ones included.
	mostOptOuts = 10_000_000
)

// JobsFor is how long JobsBucket keeps a change of many coupons.
const JobsFor = 24 * time.Hour

// jobsConfig is the stream of JobsBucket.
func jobsConfig(replicas int) jetstream.StreamConfig {
	c := bucketStream(JobsBucket, "scrip: the last long action of each kind, and of each key, its progress and its result", replicas)
	c.MaxBytes, c.AllowMsgTTL = jobsBytes, true
	return c
}

// OnceFor is how long OnceBucket keeps a value at most.
const OnceFor = 24 * time.Hour

// onceConfig is the stream of OnceBucket. Direct gets are off: a replica that lags would miss what a client has just sent.
func onceConfig(replicas int) jetstream.StreamConfig {
	c := bucketStream(OnceBucket, "scrip: answers by Idempotency-Key, and tokens that work once, for a day; sealed", replicas)
	c.MaxAge, c.AllowMsgTTL, c.MaxBytes, c.AllowDirect = OnceFor, true, OnceBytes, false
	return c
}

// optOutConfig is the stream of OptOutBucket. Direct gets are off, for the same reason.
func optOutConfig(replicas int) jetstream.StreamConfig {
	c := bucketStream(OptOutBucket, "scrip: customers who want no reminders", replicas)
	c.AllowDirect, c.MaxMsgs = false, mostOptOuts
	return c
}

// snapConfig is the stream of an object store, as nats.go makes it.
func snapConfig(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: SnapStream, Description: "scrip: snapshots; losing them costs time only",
		Subjects: []string{"$O." + SnapBucket + ".C.>", "$O." + SnapBucket + ".M.>"},
		Storage:  jetstream.FileStorage, Replicas: replicas, Discard: jetstream.DiscardNew,
		Duplicates: defaultWindow, AllowRollup: true, AllowDirect: true,
	}
}

// PushConfig is the stream of PushBucket.
func PushConfig(replicas int) jetstream.StreamConfig {
	return bucketStream(PushBucket, "scrip: how far push senders are", replicas)
}

// PushWaitConfig is the configuration of PushWaitStream. What it refuses, its sender gives back to NATS and tries again later.
func PushWaitConfig(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: PushWaitStream, Subjects: []string{PushWaitSubjects + ">"}, Description: "scrip: which reminders wait to be pushed",
		Storage: jetstream.FileStorage, Retention: jetstream.WorkQueuePolicy, Replicas: replicas, Duplicates: defaultWindow,
		MaxBytes: pushBytes, Discard: jetstream.DiscardNew,
	}
}

// PushDeadConfig is the configuration of PushDeadStream. The same holds.
func PushDeadConfig(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: PushDeadStream, Subjects: []string{PushDeadSubjects + ">"}, Description: "scrip: reminders that could not be pushed",
		Storage: jetstream.FileStorage, MaxMsgsPerSubject: 1, Replicas: replicas, Duplicates: defaultWindow,
		MaxBytes: pushBytes, Discard: jetstream.DiscardNew,
	}
}

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
