package topology

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// DefaultLanes is the number of lanes of a new log when nobody says otherwise.
	DefaultLanes = 4
	// MaxLanes bounds the number of lanes: each costs three streams, and on a cluster three raft groups.
	MaxLanes = 1024
	// DefaultCmdMaxBytes bounds a command stream; beyond it publishers are refused (not_durable).
	DefaultCmdMaxBytes = 1 << 30

	// evtMaxMsgSize bounds a message of an event or reminder stream. A step stays under 512 KiB.
	evtMaxMsgSize = 1 << 20
	// minMaxPayload is the least max_payload the server must allow: a whole step with its headers, and a command message
	// a good deal over its limit of 256 KiB, which is to be answered `invalid` rather than be lost in the client.
	minMaxPayload = 1 << 20
	// dedupeWindow is the smallest the server allows. Idempotency is the domain's (command ids); the server's memory
	// of message ids would be 115 bytes each for nothing.
	dedupeWindow = 100 * time.Millisecond
	// leaseMarkerTTL is how long the marker of an expired or released lease stays; it must outlive a reconnect of a
	// watcher, not more.
	leaseMarkerTTL = time.Minute
)

// Spec is what the caller wants the log to be.
type Spec struct {
	// Lanes is the number of lanes. 0 takes the log's own, or DefaultLanes for a new log.
	Lanes int
	// Replicas of every stream and bucket, 1 to 5. Defaults to 1.
	Replicas int
	// KeyFingerprint names the code key. Required to create a log; empty on an existing log = not checked (for
	// servers that never see a code).
	KeyFingerprint string
	// CmdMaxBytes bounds each command stream. Defaults to DefaultCmdMaxBytes.
	CmdMaxBytes int64
	// Format of a new log. Defaults to Format. FormatUnsealed makes one as versions before seals did, for tests.
	Format int
}

func (s Spec) withDefaults() Spec {
	if s.Replicas == 0 {
		s.Replicas = 1
	}
	if s.CmdMaxBytes == 0 {
		s.CmdMaxBytes = DefaultCmdMaxBytes
	}
	if s.Format == 0 {
		s.Format = Format
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
	// MetaRestoring stands on the state bucket's stream for as long as a restore has not finished: no server works on
	// such a log.
	MetaRestoring = "scrip_restoring"
	// MetaRestored stands on every stream that came from a backup, for good.
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

// streamConfigs are the streams of one lane. The order matters to nobody.
func streamConfigs(lane int, id identity, spec Spec) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		keptStream(EvtStream(lane), Evt(lane), id, spec),
		keptStream(RmdStream(lane), Rmd(lane), id, spec),
		cmdStream(lane, id, spec),
	}
}

// keptStream is a stream with one writer that is kept for ever: no compression (S2 made restarts ten times slower), no
// limits, and nothing switched on by which a message could disappear or be replaced. Direct gets stay off: they may
// be answered by a replica that lags, and everything that reads single messages here decides on them.
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

// cmdStream bounds commands by bytes and refuses new ones when full; it has no MaxAge, which would drop commands
// nobody decided. Its owner purges what events cover. MaxMsgSize is the server's max_payload: a message over the
// contract's limits gets an answer. DenyDelete keeps the sequence free of holes.
func cmdStream(lane int, id identity, spec Spec) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        CmdStream(lane),
		Subjects:    append(firstSubjects(lane), LaneShop(lane)),
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

// firstSubjects are those of a command stream made before there was LaneShop. Ensure adds what is missing.
func firstSubjects(lane int) []string {
	return []string{LaneCmd(lane), LaneCmdFor(lane, "*"), LaneAdminFor(lane, "*"), LaneDue(lane)}
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

// LeaseConfig is the bucket of leases, for whoever needs it before there is a log.
func LeaseConfig(replicas int) jetstream.KeyValueConfig {
	return leaseConfig(Spec{Replicas: replicas}.withDefaults())
}

func snapConfig(spec Spec) jetstream.ObjectStoreConfig {
	return jetstream.ObjectStoreConfig{
		Bucket: SnapBucket, Description: "scrip: snapshots; losing them costs time only",
		Replicas: spec.Replicas, Storage: jetstream.FileStorage,
	}
}
