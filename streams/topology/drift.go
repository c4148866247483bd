package topology

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// drift lists, for people, how a stream differs from what this program would have made. It compares every setting by
// which the log could lose, reorder, alter or reject messages, and omits what the server sets by itself.
func drift(want, have jetstream.StreamConfig) []string {
	var out []string
	differ := func(setting string, w, h any) {
		if ws, hs := fmt.Sprint(w), fmt.Sprint(h); ws != hs {
			out = append(out, fmt.Sprintf("stream %s: %s is %s, expected %s", want.Name, setting, hs, ws))
		}
	}
	differ("subjects", sorted(want.Subjects), sorted(have.Subjects))
	differ("retention", want.Retention, have.Retention)
	differ("storage", want.Storage, have.Storage)
	differ("compression", want.Compression, have.Compression)
	differ("discard", want.Discard, have.Discard)
	differ("replicas", want.Replicas, have.Replicas)
	differ("max_msgs", limit(want.MaxMsgs), limit(have.MaxMsgs))
	differ("max_msgs_per_subject", limit(want.MaxMsgsPerSubject), limit(have.MaxMsgsPerSubject))
	differ("max_bytes", limit(want.MaxBytes), limit(have.MaxBytes))
	differ("max_msg_size", limit(int64(want.MaxMsgSize)), limit(int64(have.MaxMsgSize)))
	differ("max_age", want.MaxAge, have.MaxAge)
	differ("duplicate_window", want.Duplicates, have.Duplicates)
	differ("deny_delete", want.DenyDelete, have.DenyDelete)
	differ("deny_purge", want.DenyPurge, have.DenyPurge)
	differ("allow_rollup", want.AllowRollup, have.AllowRollup)
	differ("allow_direct", want.AllowDirect, have.AllowDirect)
	differ("allow_msg_ttl", want.AllowMsgTTL, have.AllowMsgTTL)
	differ("allow_msg_schedules", want.AllowMsgSchedules, have.AllowMsgSchedules)
	differ("allow_msg_counter", want.AllowMsgCounter, have.AllowMsgCounter)
	differ("allow_atomic", want.AllowAtomicPublish, have.AllowAtomicPublish)
	differ("allow_batched", want.AllowBatchPublish, have.AllowBatchPublish)
	differ("persist_mode", want.PersistMode, have.PersistMode)
	differ("no_ack", want.NoAck, have.NoAck)
	differ("sealed", want.Sealed, have.Sealed)
	differ("mirror", want.Mirror != nil, have.Mirror != nil)
	differ("sources", len(want.Sources), len(have.Sources))
	differ("subject_transform", want.SubjectTransform != nil, have.SubjectTransform != nil)
	return out
}

func sorted(s []string) string {
	s = slices.Clone(s)
	slices.Sort(s)
	return strings.Join(s, " ")
}

// limit maps the two forms of "no limit", 0 and -1, to one.
func limit(n int64) string {
	if n <= 0 {
		return "unlimited"
	}
	return fmt.Sprint(n)
}
