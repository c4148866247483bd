package topology

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// AsMade returns the configuration that a stream of the log is made with, and how another one differs from it. The number of
// copies and the size of a command stream are taken from that one. The zero value is for a stream that a log does not have.
func (l Log) AsMade(name string, have jetstream.StreamConfig) (made jetstream.StreamConfig, differs []string) {
	made, all := l.compare(name, have)
	for _, d := range all {
		differs = append(differs, d.text)
	}
	return made, differs
}

func (l Log) compare(name string, have jetstream.StreamConfig) (made jetstream.StreamConfig, differs []difference) {
	spec := Spec{Replicas: have.Replicas, CmdMaxBytes: have.MaxBytes}
	id := identity{UUID: l.UUID, Lanes: l.Lanes, KeyFingerprint: l.KeyFingerprint, Format: l.Format, Created: l.Created}
	all := []jetstream.StreamConfig{
		stateConfig(have.Replicas), snapConfig(have.Replicas), auditStream(id, spec), outStream(id, spec),
		Settings.Config(have.Replicas), Access.Config(have.Replicas), Webhooks.Config(have.Replicas),
		PushConfig(have.Replicas), PushWaitConfig(have.Replicas), PushDeadConfig(have.Replicas), optOutConfig(have.Replicas),
		LeaseConfig(have.Replicas), jobsConfig(have.Replicas), onceConfig(have.Replicas),
	}
	if lane, ok := parseLane(name[strings.LastIndexByte(name, '_')+1:]); ok && lane < l.Lanes {
		all = streamConfigs(lane, id, spec)
	}
	if i := slices.IndexFunc(all, func(c jetstream.StreamConfig) bool { return c.Name == name }); i >= 0 {
		made = all[i]
	}
	return made, differences(made, have)
}

// endangering are the settings of a stream by their names in JSON: whether another value than scrip's can remove messages, replace them,
// or keep new ones out. A setting that is not here is new.
var endangering = map[string]bool{
	"subjects": true, "retention": true, "max_msgs": true, "max_bytes": true, "max_age": true, "max_msgs_per_subject": true, "max_msg_size": true,
	"discard": true, "discard_new_per_subject": true, "storage": true, "no_ack": true, "mirror": true, "sources": true, "sealed": true,
	"deny_delete": true, "deny_purge": true, "allow_rollup_hdrs": true, "first_seq": true, "subject_transform": true, "allow_msg_ttl": true,
	"subject_delete_marker_ttl": true, "allow_msg_counter": true, "allow_msg_schedules": true, "persist_mode": true,
	"name": false, "description": false, "max_consumers": false, "num_replicas": false, "duplicate_window": false, "placement": false,
	"compression": false, "republish": false, "allow_direct": false, "mirror_direct": false, "consumer_limits": false, "metadata": false,
	"template_owner": false, "allow_atomic": false, "allow_batched": false,
}

// difference is one of a stream's settings, by its name in JSON.
type difference struct{ setting, text string }

// drift is differences as text.
func drift(want, have jetstream.StreamConfig) (out []string) {
	for _, d := range differences(want, have) {
		out = append(out, d.text)
	}
	return out
}

// differences lists, for people, how a stream differs from what this program would have made, in every setting but its placement and
// metadata that scrip did not set.
func differences(want, have jetstream.StreamConfig) (out []difference) {
	wanted, had := settings(want), settings(have)
	differ := func(setting, is, expected string) {
		if is != expected {
			out = append(out, difference{setting, fmt.Sprintf("stream %s: %s is %s, expected %s", want.Name, setting, is, expected)})
		}
	}
	for key, value := range want.Metadata {
		differ(key, have.Metadata[key], value)
	}
	names := slices.Concat(slices.Collect(maps.Keys(wanted)), slices.Collect(maps.Keys(had)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		differ(name, cmp.Or(had[name], "not set"), cmp.Or(wanted[name], "not set"))
	}
	return out
}

// spans are the settings that are durations, which JSON has in nanoseconds.
var spans = []string{"max_age", "duplicate_window", "subject_delete_marker_ttl"}

// settings returns the settings of a stream by their names in JSON, durations as Go writes them. What means "not set" is left
// out: the server reports it in other forms than it was given.
func settings(c jetstream.StreamConfig) map[string]string {
	c.Placement, c.Metadata = nil, nil
	c.Subjects = slices.Sorted(slices.Values(c.Subjects))
	fields, texts := map[string]json.RawMessage{}, map[string]string{}
	var raw bytes.Buffer
	encoder := json.NewEncoder(&raw)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(c)
	if err = cmp.Or(err, json.Unmarshal(raw.Bytes(), &fields)); err != nil {
		texts["configuration"] = err.Error()
	}
	for name, value := range fields {
		text := string(value)
		if slices.Contains([]string{"0", "-1", "false", "null", "{}", "[]", `""`}, text) {
			continue
		}
		if span, err := strconv.ParseInt(text, 10, 64); err == nil && slices.Contains(spans, name) {
			text = time.Duration(span).String()
		}
		texts[name] = text
	}
	return texts
}
