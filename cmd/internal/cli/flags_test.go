package cli

import (
	"testing"
	"time"
)

func TestTimes(t *testing.T) {
	noon := time.Date(2026, 11, 27, 12, 0, 0, 123_456_789, time.UTC)
	for _, c := range []struct{ text, want string }{
		{"2026-11-27T00:00:00Z", "2026-11-27T00:00:00Z"},
		{"2026-11-27T01:00:00.5+01:00", "2026-11-27T00:00:00.5Z"},
		{"+10m", "2026-11-27T12:10:00.123Z"},
		{"+0s", "2026-11-27T12:00:00.123Z"},
		{"+1h30m", "2026-11-27T13:30:00.123Z"},
		{"-10m", "2026-11-27T11:50:00.123Z"},
		{"10m", ""}, {"++10m", ""}, {"+-10m", ""}, {"--10m", ""}, {"+", ""}, {"", ""}, {"now", ""}, {"+10", ""},
		{"2026-11-27", ""}, {"2026-11-27 00:00:00", ""}, {"1969-01-01T00:00:00Z", ""},
	} {
		got, err := ParseTime(c.text, noon)
		switch {
		case c.want == "" && err == nil:
			t.Errorf("%q was understood as %s", c.text, got)
		case c.want != "" && (err != nil || got.String() != c.want):
			t.Errorf("%q is %s (%v), want %s", c.text, got, err, c.want)
		}
	}
}
