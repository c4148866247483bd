package backup_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// edit changes a file of a backup and puts its checksum right, as a program with write access would.
func edit(t *testing.T, dir, name, old, changed string) {
	t.Helper()
	sum := func(text []byte) string { s := sha256.Sum256(text); return hex.EncodeToString(s[:]) }
	before, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	after := strings.Replace(string(before), old, changed, 1)
	if after == string(before) {
		t.Fatalf("%s has no %q:\n%s", name, old, before)
	}
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{name: after, "SHA256SUMS": strings.Replace(string(sums), sum(before), sum([]byte(after)), 1)} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAChangedBackup: who has no key changes nothing that a key does not find, and no stream comes back with a setting that
// sends messages elsewhere.
func TestAChangedBackup(t *testing.T) {
	s := streamtest.Start(t, streamtest.Lanes(lanes))
	r := newRig(t, s.JetStream(t), 1)
	unlock := func(l topology.Log) (topology.Log, error) { return l.WithKey(testKey), nil }
	takeBy := func(unlock func(topology.Log) (topology.Log, error)) string {
		dir := filepath.Join(t.TempDir(), "backup")
		if _, err := backup.Create(t.Context(), r.js, dir, backup.CreateOptions{Unlock: unlock, Version: "test", Logger: streamtest.Logger(t)}); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	check := func(dir string) (bool, error) {
		b := open(t, dir)
		return b.CheckSeal(seal.Derive(testKey, b.Log))
	}
	dir := takeBy(unlock)
	if sealed, err := check(dir); !sealed || err != nil {
		t.Errorf("as it was taken: %t %v", sealed, err)
	}
	b := open(t, dir)
	if _, err := b.CheckSeal(seal.Derive([32]byte{9}, b.Log)); !errors.Is(err, backup.ErrDamaged) {
		t.Errorf("another key: %v", err)
	}
	edit(t, dir, "manifest.json", `"scrip": "test"`, `"scrip": "TEST"`)
	if _, err := check(dir); !errors.Is(err, backup.ErrDamaged) || !strings.Contains(err.Error(), "SHA256SUMS.seal") {
		t.Errorf("changed: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "SHA256SUMS.seal")); err != nil {
		t.Fatal(err)
	}
	if _, err := check(dir); !errors.Is(err, backup.ErrDamaged) {
		t.Errorf("without its seal: %v", err)
	}

	// One of before seals, or taken without the key.
	if sealed, err := check(takeBy(nil)); sealed || err != nil {
		t.Errorf("without a key: %t %v", sealed, err)
	}

	dir, m := take(t, r.js) // with the key
	edit(t, dir, "manifest.json", m.KeyFingerprint, "0123")
	if _, err := backup.Open(t.Context(), dir, nil); err == nil || !strings.Contains(err.Error(), "not the key of this log") {
		t.Errorf("another key's fingerprint: %v", err)
	}

	for _, setting := range []string{
		`"republish":{"src":">","dest":"evil.>"}`, `"subject_transform":{"src":">","dest":"evil.>"}`, `"sources":[{"name":"EVIL"}]`, `"Mirror":{"name":"EVIL"}`, `"ſources":[{"name":"EVIL"}]`,
	} {
		dir := takeBy(nil)
		edit(t, dir, topology.EvtStream(0)+".json", `"name":`, setting+`,"name":`)
		if _, err := backup.Open(t.Context(), dir, nil); !errors.Is(err, backup.ErrDamaged) || !strings.Contains(err.Error(), "scrip never does") {
			t.Errorf("%s: %v", setting, err)
		}
	}
}
