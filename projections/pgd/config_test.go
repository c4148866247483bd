package pgd

import (
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestQuote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"on":            `'on'`,
		"":              `''`,
		"it's":          `'it''s'`,
		`C:\data`:       `'C:\\data'`,
		"a\nfsync = no": `'a\nfsync = no'`,
	} {
		if got := quote(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestSharedBuffers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ memory, want int64 }{
		{0, 128 * mebibyte}, // unknown
		{64 * mebibyte, 16 * mebibyte},
		{2048 * mebibyte, 256 * mebibyte},
		{1 << 40, 2048 * mebibyte},
	} {
		if got := sharedBuffers(tc.memory); got != tc.want {
			t.Errorf("%d MiB: got %d, want %d MiB", tc.memory/mebibyte, got/mebibyte, tc.want/mebibyte)
		}
	}
}

func TestOwnSettingsComeLast(t *testing.T) {
	t.Parallel()
	text := configText("/data/postgres", Binaries{Version: "postgres (PostgreSQL) 15.14"}, map[string]string{"fsync": "off"})
	if on, off := strings.Index(text, "fsync = 'on'"), strings.Index(text, "fsync = 'off'"); on < 0 || off < on {
		t.Errorf("the last of two settings wins, and this one is not the caller's:\n%s", text)
	}
	if !strings.Contains(text, "postgres (PostgreSQL) 15.14") {
		t.Errorf("the version is missing, by which a postmaster of another one is not adopted:\n%s", text)
	}
}

func TestWALCompressionIsOneThatPostgreSQLKnows(t *testing.T) {
	t.Parallel()
	all, err := findAll()
	streamtest.Must(t, err)
	// That a cluster starts with this text is shown by every other test.
	if got := all[0].walCompression(t.TempDir()); got != "lz4" && got != "off" {
		t.Errorf("compression %q", got)
	}
	streamtest.Equal(t, "compression where PostgreSQL cannot be run", (Binaries{Dir: t.TempDir()}).walCompression(t.TempDir()), "off")
}
