package datadir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// Root does not follow links of other users in the data directory, and does not change their targets; it follows its own
// links, for example to another disk.
func TestPlantedLinksAreRefused(t *testing.T) {
	const mallory = 61234
	for _, name := range []string{lockFile, natsDir, keyFile, formatFile, "postgres", "postgres.place"} {
		dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
		streamtest.Must(t, os.WriteFile(victim, []byte("the victim's"), 0o644))
		link := filepath.Join(dir, name)
		streamtest.Must(t, os.Symlink(victim, link))
		asRoot := os.Geteuid() == 0
		if asRoot {
			streamtest.Must(t, os.Lchown(link, mallory, mallory))
		}
		if asRoot || name == lockFile {
			d, err := Open(dir)
			if err == nil {
				_ = d.Close()
			}
			if err == nil || !strings.Contains(err.Error(), link) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if raw, err := os.ReadFile(victim); err != nil || string(raw) != "the victim's" {
			t.Errorf("%s: the victim's file is %q (%v)", name, raw, err)
		}
	}
	dir, store := t.TempDir(), t.TempDir()
	streamtest.Must(t, os.Symlink(store, filepath.Join(dir, natsDir)))
	open(t, dir)
}

func TestWhoMayListTheDirectory(t *testing.T) {
	for mode, want := range map[os.FileMode]bool{0o700: false, 0o711: false, 0o750: true, 0o755: true} {
		dir := filepath.Join(t.TempDir(), "data")
		d := open(t, dir)
		if d.Listable() {
			t.Error("a new data directory can be listed by others")
		}
		streamtest.Must(t, os.Chmod(dir, mode))
		if d.Listable() != want {
			t.Errorf("mode %v: %v", mode, d.Listable())
		}
	}
}

func TestCredentials(t *testing.T) {
	d := open(t, t.TempDir())
	if CredentialsPath(d.Path()) != "" {
		t.Error("a path of credentials that are not there")
	}
	made, err := d.Credentials()
	if err != nil || made.User == "" || len(made.Password) < 32 {
		t.Fatalf("%+v, %v", made, err)
	}
	path := CredentialsPath(d.Path())
	streamtest.Must(t, os.Chmod(path, 0o644))
	if again, err := d.Credentials(); err != nil || again != made {
		t.Errorf("they changed: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v", path, info.Mode(), err)
	}
	for _, text := range []string{"", "scrip", ":x", "x:"} {
		streamtest.Must(t, os.WriteFile(path, []byte(text), 0o600))
		if got, err := d.Credentials(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	streamtest.Must(t, os.WriteFile(path, []byte("shop:pass:word\n"), 0o600))
	if got, err := d.Credentials(); err != nil || got != (Credentials{"shop", "pass:word"}) {
		t.Errorf("chosen ones: %+v, %v", got, err)
	}
}
