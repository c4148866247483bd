package topology

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

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

// settings returns the settings of a stream by their names in JSON, durations in nanoseconds. What stands for "not set" is left
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
