package backup_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"

	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// keyless is a backup without its key of a log with claims, whose event streams have several chunks.
func keyless(t *testing.T) (dir string, held map[string]string) {
	t.Helper()
	js := streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t)
	newRig(t, js, 1)
	fill(t, js)
	r, held := claimed(t, js, 1, 1, 20)
	r.stop()
	dir = filepath.Join(t.TempDir(), "keyless")
	_, err := backup.Create(t.Context(), r.js, dir, backup.CreateOptions{Key: testKey, WithoutKey: true, Logger: streamtest.Logger(t)})
	streamtest.Must(t, err)
	return dir, held
}

// finds reports whether data, or what it decompresses to, has one of the texts. Streams' copies are compressed.
func finds(data []byte, texts []string) bool {
	plain, _ := io.ReadAll(s2.NewReader(bytes.NewReader(data))) // nothing where it is not compressed
	return slices.ContainsFunc(texts, func(text string) bool {
		return bytes.Contains(data, []byte(text)) || bytes.Contains(plain, []byte(text))
	})
}

// TestWithoutTheKeyNothingIsRead: no file of a backup without its key shows a code or a customer. The same search finds both in
// the decrypted files.
func TestWithoutTheKeyNothingIsRead(t *testing.T) {
	dir, held := keyless(t)
	codes, customers := []string{}, []string{}
	for id, code := range held {
		codes, customers = append(codes, code), append(customers, `"`+strings.TrimPrefix(id, "claim-")+`"`)
	}
	entries, err := os.ReadDir(dir)
	streamtest.Must(t, err)
	found := map[string]bool{}
	for _, e := range entries {
		if finds(backup.File(t, dir, e.Name()), slices.Concat(codes, customers)) {
			t.Errorf("%s shows a code or a customer", e.Name())
		}
		if strings.HasSuffix(e.Name(), ".age") {
			text := backup.Text(t, dir, e.Name(), testKey)
			found["codes"] = found["codes"] || finds(text, codes)
			found["customers"] = found["customers"] || finds(text, customers)
		}
	}
	if !found["codes"] || !found["customers"] {
		t.Errorf("the search finds in decrypted files: %v", found)
	}
}

// TestAForgedFile: who cannot encrypt changes nothing unnoticed, also with checksums and sizes that fit.
func TestAForgedFile(t *testing.T) {
	whole, _ := keyless(t)
	const chunk = 64<<10 + 16
	name, other := topology.EvtStream(0)+".snapshot.age", topology.EvtStream(1)+".snapshot.age"
	file := backup.File(t, whole, name)
	nonce := bytes.Index(file, []byte("\n--- ")) + 5 + 43 + 1 // behind the head
	full := nonce + 16 + (len(file)-nonce-16)/chunk*chunk     // behind the last chunk that is full
	for what, forged := range map[string][]byte{
		"another file":          backup.File(t, whole, other),
		"a changed byte":        func() []byte { b := bytes.Clone(file); b[len(b)/2] ^= 1; return b }(),
		"without its end":       file[:full],
		"without its last byte": file[:len(file)-1],
		"without all chunks":    file[:nonce+16],
		"more at its end":       append(bytes.Clone(file), 0),
		"in clear":              backup.Text(t, whole, name, testKey),
		"with another key":      backup.Encrypted(t, whole, name, [32]byte{9}, backup.Text(t, whole, name, testKey)),
	} {
		dir := filepath.Join(t.TempDir(), "backup")
		streamtest.Must(t, os.CopyFS(dir, os.DirFS(whole)))
		put(t, dir, name, forged)
		var m backup.Manifest
		streamtest.Must(t, json.Unmarshal(backup.File(t, dir, "manifest.json"), &m))
		m.Streams[slices.IndexFunc(m.Streams, func(s backup.Stream) bool { return s.Name == topology.EvtStream(0) })].Size = int64(len(forged))
		text, err := json.Marshal(m)
		streamtest.Must(t, err)
		put(t, dir, "manifest.json", text)
		if _, err := backup.Open(t.Context(), dir, &testKey, nil); !errors.Is(err, backup.ErrDamaged) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, key := range map[string]*[32]byte{"no key": nil, "another key": {9}} {
		var m backup.Manifest
		streamtest.Must(t, json.Unmarshal(backup.File(t, whole, "manifest.json"), &m))
		if _, err := backup.Open(t.Context(), whole, key, nil); !errors.Is(err, backup.ErrNoKey) || !strings.Contains(err.Error(), m.KeyFingerprint) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
