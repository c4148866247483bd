package backup_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// put replaces a file of a backup and puts its checksum right, as a program with write access would.
func put(t *testing.T, dir, name string, after []byte) {
	t.Helper()
	sum := func(text []byte) string { s := sha256.Sum256(text); return hex.EncodeToString(s[:]) }
	before, sums := backup.File(t, dir, name), string(backup.File(t, dir, "SHA256SUMS"))
	for file, text := range map[string]string{name: string(after), "SHA256SUMS": strings.Replace(sums, sum(before), sum(after), 1)} {
		streamtest.Must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
}

// edit puts a changed text in place of another.
func edit(t *testing.T, dir, name, old, changed string) {
	t.Helper()
	encrypted := strings.HasSuffix(name, ".age")
	before := string(backup.File(t, dir, name))
	if encrypted {
		before = string(backup.Text(t, dir, name, testKey))
	}
	after := strings.Replace(before, old, changed, 1)
	if after == before {
		t.Fatalf("%s has no %q:\n%s", name, old, before)
	}
	if encrypted {
		after = string(backup.Encrypted(t, dir, name, testKey, []byte(after)))
	}
	put(t, dir, name, []byte(after))
}

// TestAChangedBackup: a person without the key changes nothing that a key does not find.
func TestAChangedBackup(t *testing.T) {
	r := newRig(t, streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t), 1)
	dir := filepath.Join(t.TempDir(), "keyless")
	if _, err := backup.Create(t.Context(), r.js, dir, backup.CreateOptions{Key: testKey, WithoutKey: true, Version: "test", Logger: streamtest.Logger(t)}); err != nil {
		t.Fatal(err)
	}
	check := func(dir string, key *[32]byte) error {
		b := open(t, dir)
		if key == nil {
			return b.CheckSeal(t.Context(), nil)
		}
		return b.CheckSeal(t.Context(), seal.Derive(*key, b.Log))
	}
	refused := func(what, dir string, key *[32]byte, want string) {
		t.Helper()
		if err := check(dir, key); !errors.Is(err, backup.ErrUnsealed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	if err := check(dir, &testKey); err != nil {
		t.Errorf("as it was taken: %v", err)
	}
	refused("another key", dir, &[32]byte{9}, "another key")
	edit(t, dir, "manifest.json", `"scrip": "test"`, `"scrip": "TEST"`)
	refused("changed", dir, &testKey, "SHA256SUMS.seal")
	streamtest.Must(t, os.Remove(filepath.Join(dir, "SHA256SUMS.seal")))
	refused("without its seal", dir, &testKey, "no SHA256SUMS.seal")

	dir, m := take(t, r.js) // with the key
	if err := check(dir, nil); err != nil {
		t.Errorf("by the key in it: %v", err)
	}
	edit(t, dir, "manifest.json", `"scrip": "test"`, `"scrip": "TEST"`)
	refused("changed, by the key in it", dir, nil, "other files")
	edit(t, dir, "manifest.json", m.KeyFingerprint, "0123")
	if _, err := backup.Open(t.Context(), dir, &testKey, nil); err == nil || !strings.Contains(err.Error(), "not the key of this log") {
		t.Errorf("another key's fingerprint: %v", err)
	}
}

// TestAPlantedStream: whatever the seal is, a stream comes back as scrip makes it, or not at all.
func TestAPlantedStream(t *testing.T) {
	r := newRig(t, streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t), 1)
	whole, _ := take(t, r.js)
	copied := func() string {
		dir := filepath.Join(t.TempDir(), "backup")
		streamtest.Must(t, os.CopyFS(dir, os.DirFS(whole)))
		return dir
	}
	const first = `"name":`
	for _, tc := range []struct{ stream, old, changed, field string }{
		{topology.EvtStream(0), first, `"republish":{"src":">","dest":"evil.>"},` + first, "republish"},
		{topology.EvtStream(0), first, `"subject_transform":{"src":">","dest":"evil.>"},` + first, "subject_transform"},
		{topology.EvtStream(0), first, `"sources":[{"name":"EVIL"}],` + first, "sources"},
		{topology.EvtStream(0), first, `"Mirror":{"name":"EVIL"},` + first, "mirror"},
		{topology.EvtStream(0), first, `"ſources":[{"name":"EVIL"}],` + first, "sources"},
		{topology.EvtStream(0), `["scrip.evt.0"`, `["scrip.evt.0","evil.>"`, "subjects"},
		{topology.EvtStream(0), `"scrip_log":"`, `"scrip_log":"x`, "scrip_log"},
		{topology.EvtStream(0), `"SCRIP_EVT_0"`, `"SCRIP_EVT_1"`, "name"},
		{topology.RmdStream(1), `"deny_purge":true`, `"deny_purge":false`, "deny_purge"},
		{topology.CmdStream(1), `"max_age":0`, `"max_age":1000000000`, "max_age"},
		{topology.StateStream, `"subjects":[`, `"subjects":["$KV.OTHER.>",`, "subjects"},
		{topology.SnapStream, first, `"allow_msg_ttl":true,` + first, "allow_msg_ttl"},
	} {
		dir := copied()
		edit(t, dir, tc.stream+".json.age", tc.old, tc.changed)
		if _, err := backup.Open(t.Context(), dir, &testKey, nil); err == nil || !strings.Contains(err.Error(), "stream "+tc.stream+": "+tc.field+" is ") {
			t.Errorf("%s of %s: %v", tc.field, tc.stream, err)
		}
	}
	dir := copied() // as the server takes it: the last of two counts
	edit(t, dir, topology.EvtStream(0)+".json.age", first, `"republish":{"src":">","dest":"evil.>"},"republish":null,`+first)
	restored := streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t)
	restore(t, dir, restored, 1)
	if stream, err := restored.Stream(t.Context(), topology.EvtStream(0)); err != nil || stream.CachedInfo().Config.RePublish != nil {
		t.Errorf("republished: %v", err)
	}

	// A stream that is no log's, and a consumer, which would deliver from the first message on.
	dir = copied()
	edit(t, dir, "manifest.json", `"`+topology.RmdStream(1)+`"`, `"EVIL"`)
	if _, err := backup.Open(t.Context(), dir, &testKey, nil); err == nil || !strings.Contains(err.Error(), `"EVIL"`) {
		t.Errorf("another stream: %v", err)
	}
	if _, err := r.js.CreateConsumer(t.Context(), topology.EvtStream(0), jetstream.ConsumerConfig{Durable: "evil", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	dir = copied()
	var data bytes.Buffer
	_, err := backup.CopyWithConsumers(t.Context(), r.js, topology.EvtStream(0), &data)
	streamtest.Must(t, err)
	const name = "SCRIP_EVT_0.snapshot.age"
	file := backup.Encrypted(t, dir, name, testKey, data.Bytes())
	put(t, dir, name, file)
	var m backup.Manifest
	streamtest.Must(t, json.Unmarshal(backup.File(t, dir, "manifest.json"), &m))
	m.Streams[slices.IndexFunc(m.Streams, func(s backup.Stream) bool { return s.Name == topology.EvtStream(0) })].Size = int64(len(file))
	text, err := json.Marshal(m)
	streamtest.Must(t, err)
	put(t, dir, "manifest.json", text)
	js := streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t)
	if err := open(t, dir).Restore(t.Context(), js, backup.RestoreOptions{Logger: streamtest.Logger(t)}); err == nil || !strings.Contains(err.Error(), "has 1 consumers") {
		t.Errorf("a planted consumer: %v", err)
	}
	if _, err := js.Stream(t.Context(), topology.EvtStream(0)); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("what is left of it: %v", err)
	}
}
