package snapstore

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/golden"
	"github.com/seed-4a2410e3/scrip/streams/seal"
)

// TestGolden: the manifest of a snapshot, and the pointer to it with its seal.
func TestGolden(t *testing.T) {
	m := manifest{
		Version: formatVersion,
		Meta: Meta{
			Format: 1, Note: json.RawMessage(`{"command_sequence":9}`),
			Position: eventlog.Position{Log: "01234567-89ab-7cde-8f01-23456789abcd", Lane: 1, Sequence: 8, Digest: "00112233445566778899aabbccddeeff"},
		},
		Parts: []part{{Size: 5, SHA256: hash([]byte("state"))}},
	}
	table, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var read manifest
	if err := json.Unmarshal(golden.Bytes(t, "manifest.golden", table), &read); err != nil || !reflect.DeepEqual(read, m) {
		t.Errorf("the file holds %+v, %v", read, err)
	}

	key := seal.Derive([32]byte{1}, m.Meta.Position.Log)
	p := pointer{Version: formatVersion, Snapshots: []ref{{Prefix: namePrefix("lane-1") + "8.abcdefgh", SHA256: hash(table), Seal: key.Snapshot("lane-1", hash(table))}}}
	value, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var pointed pointer
	if err := json.Unmarshal(golden.Bytes(t, "pointer.golden", value), &pointed); err != nil || !reflect.DeepEqual(pointed, p) {
		t.Errorf("the file holds %+v, %v", pointed, err)
	}
	if r := pointed.Snapshots[0]; !key.ValidSnapshot("lane-1", r.SHA256, r.Seal) {
		t.Error("the seal in the file is not valid")
	}
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
