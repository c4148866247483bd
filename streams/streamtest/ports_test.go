package streamtest

import (
	"os"
	"path/filepath"
	"testing"
)

// Reserved ports stay reserved while nobody listens on them: between choice and start, and during restarts.
func TestPortsAreReserved(t *testing.T) {
	locks := t.TempDir()
	port := freePorts(t, 1)[0]
	if !reserve(t, locks, port) {
		t.Fatalf("port %d is not free", port)
	}
	t.Run("another test", func(t *testing.T) {
		if reserve(t, locks, port) {
			t.Error("a port was reserved twice")
		}
	})
	released := filepath.Join(locks, "released")
	t.Run("a test that ends", func(t *testing.T) {
		if err := os.Mkdir(released, 0o700); err != nil {
			t.Fatal(err)
		}
		if !reserve(t, released, port) {
			t.Error("a port was not reserved")
		}
	})
	if !reserve(t, released, port) {
		t.Error("a port is still reserved after its test")
	}
	seen := map[int]bool{}
	for _, p := range append(freePorts(t, 500), freePorts(t, 500)...) {
		if seen[p] {
			t.Fatalf("port %d twice", p)
		}
		seen[p] = true
	}
}
