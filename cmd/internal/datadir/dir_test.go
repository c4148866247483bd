package datadir

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/golden"
)

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestASecondServerIsRefusedWithTheFirstOnesPID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	first := open(t, path)
	_, err := Open(path)
	if err == nil || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) || !strings.Contains(err.Error(), "--data") {
		t.Fatalf("second Open: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path)
}

func TestFormat(t *testing.T) {
	for _, c := range []struct{ content, want string }{
		{"", ""},
		{"1\n", ""},
		{"2\n", "has format 2, this program supports formats up to 1; use the newer scrip"},
		{"zero", "restore it"},
		{"0", "restore it"},
	} {
		path := t.TempDir()
		if c.content != "" {
			if err := os.WriteFile(filepath.Join(path, "format"), []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d, err := Open(path)
		if c.want == "" {
			if err != nil {
				t.Errorf("format %q: %v", c.content, err)
				continue
			}
			if raw, _ := os.ReadFile(filepath.Join(path, "format")); string(raw) != "1\n" {
				t.Errorf("format %q became %q", c.content, raw)
			}
			_ = d.Close()
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("format %q: %v, want %q", c.content, err, c.want)
		}
		// A refused directory is free again.
		if err := os.WriteFile(filepath.Join(path, "format"), []byte("1"), 0o600); err != nil {
			t.Fatal(err)
		}
		open(t, path)
	}
}

func TestServerIDStays(t *testing.T) {
	d := open(t, t.TempDir())
	first, err := d.ServerID()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.ServerID(); err != nil || again != first {
		t.Fatalf("id changed from %s to %s (%v)", first, again, err)
	}
}

func TestKeyIsMadeOnlyWithoutALog(t *testing.T) {
	d := open(t, t.TempDir())
	if _, err := d.Key("", "0123456789abcdef"); err == nil || !strings.Contains(err.Error(), KeyVariable) {
		t.Fatalf("a log without its key: %v", err)
	}
	if _, err := os.Stat(d.file(keyFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("a key was made for a log that exists")
	}
	made, err := d.Key("", "")
	if err != nil || !made.Made {
		t.Fatalf("%+v, %v", made, err)
	}
	if info, err := os.Stat(d.file(keyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	again, err := d.Key("", code.Fingerprint(made.Key))
	if err != nil || again.Made || again.Key != made.Key {
		t.Fatalf("%+v, %v", again, err)
	}
}

func TestOnlyAGeneratedKeyIsDiscarded(t *testing.T) {
	d := open(t, t.TempDir())
	made, err := d.Key("", "")
	if err != nil {
		t.Fatal(err)
	}
	found, err := d.Key("", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.DiscardKey(found); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.file(keyFile)); err != nil {
		t.Fatalf("a key that was there before is gone: %v", err)
	}
	if err := d.DiscardKey(made); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.file(keyFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the key made for nothing is still there: %v", err)
	}
}

func TestAnotherKeyIsRefused(t *testing.T) {
	d := open(t, t.TempDir())
	made, err := d.Key("", "")
	if err != nil {
		t.Fatal(err)
	}
	fingerprint := code.Fingerprint(made.Key)
	other := strings.Repeat("ab", 32)
	if _, err := d.Key(other, fingerprint); err == nil || !strings.Contains(err.Error(), fingerprint) {
		t.Errorf("variable with another key: %v", err)
	}
	if _, err := d.Key("abc", ""); err == nil || !strings.Contains(err.Error(), KeyVariable) {
		t.Errorf("short variable: %v", err)
	}
	if err := os.WriteFile(d.file(keyFile), []byte(other), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Key("", fingerprint); err == nil || !strings.Contains(err.Error(), "code.key") {
		t.Errorf("file with another key: %v", err)
	}
	if info, err := os.Stat(d.file(keyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a key others can read keeps mode %v (%v)", info.Mode(), err)
	}
}

func TestDescriptor(t *testing.T) {
	path := t.TempDir()
	if _, err := Find(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Find without a server: %v", err)
	}
	d := open(t, path)
	want := Descriptor{PID: os.Getpid(), NATSURL: "nats://127.0.0.1:4222", HTTPURL: "http://127.0.0.1:8080", PostgresURL: "postgres://x", Lanes: 4, TLSCert: "/data/cert.pem", Sync: "always"}
	if err := d.Publish(want); err != nil {
		t.Fatal(err)
	}
	got, err := Find(path)
	if err != nil || got != want || !got.Alive() {
		t.Fatalf("%+v, %v", got, err)
	}
	stored, err := os.ReadFile(d.file(descriptor))
	if err != nil {
		t.Fatal(err)
	}
	golden.Bytes(t, "scrip.json.golden", bytes.Replace(stored, []byte(strconv.Itoa(want.PID)), []byte("4711"), 1))
	if info, err := os.Stat(d.file(descriptor)); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	// Killed: the next server removes what was left.
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = open(t, path)
	if _, err := Find(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a stale descriptor survived: %v", err)
	}
	if err := d.Withdraw(); err != nil {
		t.Fatal(err)
	}
}
