package topology

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/golden"
)

// TestGolden: the identity of a log, and the configurations of its streams, with the identity in their metadata.
func TestGolden(t *testing.T) {
	id := identity{
		UUID: "01234567-89ab-7cde-8f01-23456789abcd", Lanes: 2, KeyFingerprint: "0123456789abcdef", Format: Format,
		Created: time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC), Complete: true,
	}
	value, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	var read identity
	if err := json.Unmarshal(golden.Bytes(t, "identity.golden", value), &read); err != nil || read != id {
		t.Errorf("the file holds %+v, %v", read, err)
	}

	spec := Spec{Replicas: 3}.withDefaults()
	configs := append(streamConfigs(1, id, spec), auditStream(id, spec), outStream(id, spec), Settings.Config(3), Access.Config(3), Webhooks.Config(3),
		stateConfig(3), LeaseConfig(3), onceConfig(3), optOutConfig(3), snapConfig(3), PushConfig(3), PushWaitConfig(3), PushDeadConfig(3))
	text, err := json.MarshalIndent(configs, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Bytes(t, "streams.golden", append(text, '\n'))
	for _, c := range configs[:4] {
		on, err := identityOf(c.Name, c.Metadata)
		if err != nil || !on.same(id) || !on.Created.Equal(id.Created) {
			t.Errorf("stream %s is of %+v, %v", c.Name, on, err)
		}
	}
}
