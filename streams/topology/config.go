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

func stateConfig(spec Spec) jetstream.KeyValueConfig {
	return jetstream.KeyValueConfig{
		Bucket: StateBucket, Description: "scrip: the log's identity and snapshot pointers",
		History: 1, Replicas: spec.Replicas, Storage: jetstream.FileStorage,
	}
}

func leaseConfig(spec Spec) jetstream.KeyValueConfig {
	return jetstream.KeyValueConfig{
		Bucket: LeaseBucket, Description: "scrip: who works on what; a hint, the fence gives safety",
		History: 1, Replicas: spec.Replicas, Storage: jetstream.FileStorage, LimitMarkerTTL: leaseMarkerTTL,
	}
}

// LeaseConfig is the lease bucket's configuration, for a tool that needs it before there is a log.
func LeaseConfig(replicas int) jetstream.KeyValueConfig {
	return leaseConfig(Spec{Replicas: replicas}.withDefaults())
}

func snapConfig(spec Spec) jetstream.ObjectStoreConfig {
	return jetstream.ObjectStoreConfig{
		Bucket: SnapBucket, Description: "scrip: snapshots; losing them costs time only",
		Replicas: spec.Replicas, Storage: jetstream.FileStorage,
	}
}
