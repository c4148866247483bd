package datadir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/golden"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	streamtest.Must(t, err)
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
	streamtest.Must(t, first.Close())
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
			streamtest.Must(t, os.WriteFile(filepath.Join(path, "format"), []byte(c.content), 0o600))
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
		streamtest.Must(t, os.WriteFile(filepath.Join(path, "format"), []byte("1"), 0o600))
		open(t, path)
	}
}

// TestKey: a key is made only where there is no log, and only one that was made for nothing is discarded. Another log's key is refused.
func TestKey(t *testing.T) {
	d := open(t, t.TempDir())
	refused := func(what, variable, fingerprint, want string) {
		t.Helper()
		if _, err := d.Key(variable, fingerprint); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	mode := func() os.FileMode {
		info, err := os.Stat(d.file(keyFile))
		if err != nil {
			return 0
		}
		return info.Mode().Perm()
	}
	refused("a log without its key", "", "0123456789abcdef", KeyVariable)
	if mode() != 0 {
		t.Fatal("a key was made for a log that exists")
	}
	made, err := d.Key("", "")
	if err != nil || !made.Made || mode() != 0o600 {
		t.Fatalf("%+v, %v, mode %v", made, err, mode())
	}
	fingerprint, other := code.Fingerprint(made.Key), strings.Repeat("ab", 32)
	again, err := d.Key("", fingerprint)
	if err != nil || again.Made || again.Key != made.Key {
		t.Fatalf("%+v, %v", again, err)
	}
	if err := d.DiscardKey(again); err != nil || mode() == 0 {
		t.Errorf("a key that was there before is gone: %v", err)
	}
	refused("variable with another key", other, fingerprint, fingerprint)
	refused("short variable", "abc", "", KeyVariable)
	if err := d.DiscardKey(made); err != nil || mode() != 0 {
		t.Errorf("the key made for nothing is still there: %v", err)
	}
	streamtest.Must(t, os.WriteFile(d.file(keyFile), []byte(other), 0o644))
	refused("file with another key", "", fingerprint, "code.key")
	if mode() != 0o600 {
		t.Errorf("a key others can read keeps mode %v", mode())
	}
}

func TestDescriptor(t *testing.T) {
	path := t.TempDir()
	if _, err := Find(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Find without a server: %v", err)
	}
	d := open(t, path)
	first, err := d.ServerID()
	if again, errAgain := d.ServerID(); err != nil || errAgain != nil || again != first {
		t.Errorf("the id changed from %s to %s (%v, %v)", first, again, err, errAgain)
	}
	want := Descriptor{PID: os.Getpid(), NATSURL: "nats://127.0.0.1:4222", HTTPURL: "http://127.0.0.1:8080", PostgresURL: "postgres://x", Lanes: 4, NATSCert: "/data/cert.pem", HTTPCert: "/data/cert.pem", NATSCA: "/etc/ca.pem", Sync: "always"}
	streamtest.Must(t, d.Publish(want))
	got, err := Find(path)
	if err != nil || got != want || !got.Alive() {
		t.Fatalf("%+v, %v", got, err)
	}
	stored, err := os.ReadFile(d.file(descriptor))
	streamtest.Must(t, err)
	golden.Bytes(t, "scrip.json.golden", bytes.Replace(stored, []byte(strconv.Itoa(want.PID)), []byte("4711"), 1))
	if info, err := os.Stat(d.file(descriptor)); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	lost := Descriptor{NATSURL: "tls://127.0.0.1:1", NATSCA: "/nowhere/ca.pem"}
	if _, err := lost.Connect(path, "test"); err == nil || !strings.Contains(err.Error(), "/nowhere/ca.pem") || !strings.Contains(err.Error(), "--nats-ca") {
		t.Errorf("without the file of the CA: %v", err)
	}
	for answer, want := range map[string]string{"PING\r\n": "too many such log-ins", "-ERR 'Authorization Violation'\r\n": "the key is mistyped or revoked"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		streamtest.Must(t, err)
		defer l.Close()
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				fmt.Fprintf(c, "INFO {\"max_payload\":1048576}\r\n%s", answer)
				defer c.Close()
			}
		}()
		stranger := Descriptor{NATSURL: "nats://sk_shop_aaaaaaaabbbbbbbbbbbbbbbb@" + l.Addr().String()}
		if _, err := stranger.Connect(path, "test"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("answered %q: %v, want %q", answer, err, want)
		}
	}
	// Killed: the next server removes what was left.
	streamtest.Must(t, d.Close())
	d = open(t, path)
	if _, err := Find(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a stale descriptor survived: %v", err)
	}
	streamtest.Must(t, d.Withdraw())
}

// TestHeld: a directory that was moved, replaced or removed, or one above it, is not the server's any more. What another server has
// published at its path stays.
func TestHeld(t *testing.T) {
	for what, c := range map[string]struct {
		change func(path string) error
		held   bool
	}{
		"untouched":      {func(string) error { return nil }, true},
		"another mode":   {func(path string) error { return os.Chmod(filepath.Join(path, lockFile), 0o640) }, true},
		"moved":          {func(path string) error { return os.Rename(path, path+".old") }, false},
		"a parent moved": {func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+".old") }, false},
		"replaced": {func(path string) error {
			if err := os.Rename(path, path+".old"); err != nil {
				return err
			}
			next, err := Open(path)
			if err != nil {
				return err
			}
			return errors.Join(next.Publish(Descriptor{PID: 4711, NATSURL: "nats://next"}), next.Close())
		}, false},
		"a file in its place": {func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600))
		}, false},
		"removed":         {os.RemoveAll, false},
		"its lock is not": {func(path string) error { return os.Remove(filepath.Join(path, lockFile)) }, false},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "above", "data")
			d := open(t, path)
			streamtest.Must(t, d.Publish(Descriptor{PID: 1, NATSURL: "nats://first"}))
			streamtest.Must(t, c.change(path))
			ctx, cancel := context.WithCancel(t.Context())
			if c.held {
				cancel() // it waits until the end
			}
			defer cancel()
			published := d.Publish(Descriptor{PID: 1, NATSURL: "nats://again"})
			now, found := Find(path)
			if withdrawn := d.Withdraw(); c.held {
				if err := errors.Join(published, found, withdrawn, d.Watch(ctx)); err != nil || now.PID != 1 {
					t.Errorf("%+v, %v", now, err)
				}
				return
			}
			for _, err := range []error{published, d.Withdraw(), d.Watch(ctx)} {
				if !errors.Is(err, atomicfile.ErrReplaced) || !strings.Contains(err.Error(), path) {
					t.Errorf("%v", err)
				}
			}
			if next, err := Find(path); what == "replaced" && (err != nil || next.PID != 4711) {
				t.Errorf("the next server's descriptor: %+v, %v", next, err)
			}
		})
	}
}
