package topology

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// AsMade returns the configuration that a stream of the log is made with, and how another one differs from it. The number of
// copies and the size of a command stream are taken from that one. The zero value is for a stream that a log does not have.
func (l Log) AsMade(name string, have jetstream.StreamConfig) (made jetstream.StreamConfig, differs []string) {
	spec := Spec{Replicas: have.Replicas, CmdMaxBytes: have.MaxBytes}
	id := identity{UUID: l.UUID, Lanes: l.Lanes, KeyFingerprint: l.KeyFingerprint, Format: l.Format, Created: l.Created}
	all := []jetstream.StreamConfig{
		stateConfig(have.Replicas), snapConfig(have.Replicas), auditStream(id, spec), outStream(id, spec),
		Settings.Config(have.Replicas), Access.Config(have.Replicas), Webhooks.Config(have.Replicas),
		PushConfig(have.Replicas), PushWaitConfig(have.Replicas), PushDeadConfig(have.Replicas), optOutConfig(have.Replicas),
	}
	if lane, ok := parseLane(name[strings.LastIndexByte(name, '_')+1:]); ok && lane < l.Lanes {
		all = streamConfigs(lane, id, spec)
	}
	if i := slices.IndexFunc(all, func(c jetstream.StreamConfig) bool { return c.Name == name }); i >= 0 {
		made = all[i]
	}
	return made, drift(made, have)
}

// drift lists, for people, how a stream differs from what this program would have made, in every setting but its placement and
// metadata that scrip did not set.
func drift(want, have jetstream.StreamConfig) (out []string) {
	wanted, had := settings(want), settings(have)
	differ := func(setting, is, expected string) {
		if is != expected {
			out = append(out, fmt.Sprintf("stream %s: %s is %s, expected %s", want.Name, setting, is, expected))
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

// settings returns the settings of a stream by their names in JSON, durations in nanoseconds. What means "not set" is left
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
		if text := string(value); !slices.Contains([]string{"0", "-1", "false", "null", "{}", "[]", `""`}, text) {
			texts[name] = text
		}
	}
	return texts
}
