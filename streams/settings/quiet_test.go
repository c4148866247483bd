package settings

import (
	"testing"
	"time"
)

func TestQuietHoursAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]Quiet{"off": {}, "22:00-08:00": {1320, 480}, "00:00-06:30": {0, 390}, "12:01-12:00": {721, 720}} {
		if q, ok := parseQuiet(text); !ok || q != want || q.String() != text {
			t.Errorf("%s is %v (%t)", text, q, ok)
		}
	}
	for _, text := range []string{"", "22:00", "22:00-22:00", "24:00-08:00", "22:00-8:00", "22:60-08:00", "22:00 08:00", "22:00-08:00 ", "OFF", "22.00-08.00"} {
		if q, ok := parseQuiet(text); ok {
			t.Errorf("%q is %v", text, q)
		}
	}
}

// On days on which clocks are set the hours are those that the clocks show.
func TestQuietHoursWhenClocksAreSet(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	utc := func(text string) time.Time {
		at, err := time.Parse("2006-01-02 15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for _, c := range []struct {
		quiet, now, until string // in UTC
	}{
		{"01:00-02:30", "2026-10-24 23:30", "2026-10-25 00:30"}, // from 01:30 on, before the hour that comes twice
		{"01:00-02:30", "2026-10-25 01:10", "2026-10-25 01:30"}, // 02:10 for the second time
		{"22:00-02:30", "2027-03-28 00:30", "2027-03-28 01:30"}, // 01:30; there is no 02:30: the clock shows 03:30 then
		{"22:00-08:00", "2027-03-28 01:00", "2027-03-28 06:00"},
		{"22:00-08:00", "2026-10-25 01:30", "2026-10-25 07:00"},
	} {
		q, _ := parseQuiet(c.quiet)
		at := utc(c.now)
		for range 3 { // who waits looks again
			if end, quiet := q.End(at.In(berlin)); quiet && !end.After(at) {
				t.Fatalf("%s: %s ends at %s", c.quiet, at, end)
			} else if quiet {
				at = end
			}
		}
		if !at.Equal(utc(c.until)) {
			t.Errorf("%s at %s lasts until %s, want %s", c.quiet, c.now, at.UTC(), c.until)
		}
	}
}
