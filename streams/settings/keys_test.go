package settings

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// check checks a value as people write it.
func check(setting, value string) (string, error) {
	return Check(setting, PatchOf(setting, value)[setting])
}

// TestTheFormsInJSON: a value of another type is refused, and pauses are an object by campaign.
func TestTheFormsInJSON(t *testing.T) {
	for setting, bad := range map[string]string{"reminder.batch": `"200"`, "reminder.rate": `1e3`, "reminder.grace": `300`, "reminder.pause.summer": `"true"`, "clock.accepted": `{}`} {
		if got, err := Check(setting, json.RawMessage(bad)); err == nil {
			t.Errorf("%s %s is read as %s", setting, bad, got)
		}
	}
	got := Patch{"reminder.batch": json.RawMessage(`7`), "reminder.pause": json.RawMessage(`{"a":true,"b":null}`), "expiry.pause": json.RawMessage(`null`)}.Flat()
	want := Object{"reminder.batch": json.RawMessage(`7`), "reminder.pause.a": json.RawMessage(`true`), "reminder.pause.b": json.RawMessage(`null`), "expiry.pause": json.RawMessage(`null`)}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s", got)
	}
}

func TestAValueIsTakenAsItIsWritten(t *testing.T) {
	for _, c := range []struct{ setting, value, written string }{
		{"reminder.batch", "1", "1"}, {"reminder.batch", "5000", "5000"},
		{"reminder.rate", "0", "0"}, {"reminder.rate", "1000000", "1000000"},
		{"reminder.concurrency", "64", "64"},
		{"reminder.grace", "1s", "1s"}, {"reminder.grace", "300s", "5m"}, {"reminder.grace", "8760h", "8760h"},
		{"clock.tolerance", "24h", "24h"},
		{"clock.accepted", "never", "never"}, {"clock.accepted", "2026-11-22T17:00:00.5+01:00", "2026-11-22T16:00:00.5Z"},
		{"deadletter.quote", "0", "0"}, {"deadletter.quote", "1024", "1024"},
		{"expiry.pause.summer", "true", "true"}, {"reminder.pause.SUMMER_2-x", "false", "false"},
		{"reminder.batch", "default", "default"}, {"reminder.pause.summer", "default", "default"},
	} {
		if got, err := check(c.setting, c.value); got != c.written || err != nil {
			t.Errorf("%s %s: %q, %v", c.setting, c.value, got, err)
		}
	}
}

// TestNonsenseIsRefusedWithWhatWouldBeRight: the text names the setting, its bounds and a value that would do.
func TestNonsenseIsRefusedWithWhatWouldBeRight(t *testing.T) {
	for _, c := range []struct{ setting, value, want string }{
		{"reminder.batch", "0", `reminder.batch can not be "0": it must be a whole number from 1 to 5000, such as 500; default, null in JSON, restores the default`},
		{"reminder.batch", "5001", "from 1 to 5000"},
		{"reminder.batch", "", "from 1 to 5000"},
		{"reminder.batch", "99999999999999999999", "from 1 to 5000"},
		{"reminder.batch", "2e2", "from 1 to 5000"}, {"reminder.batch", "+1", "from 1 to 5000"}, {"reminder.batch", "007", "from 1 to 5000"},
		{"reminder.rate", "-1", "from 0 to 1000000"},
		{"reminder.rate", "1000001", "from 0 to 1000000"},
		{"reminder.concurrency", "0", "from 1 to 64"},
		{"reminder.concurrency", "65", "from 1 to 64"},
		{"reminder.grace", "0s", "a duration from 1s to 8760h"},
		{"reminder.grace", "999ms", "from 1s"},
		{"reminder.grace", "8760h1s", "to 8760h"},
		{"reminder.grace", "-5m", "from 1s"},
		{"reminder.grace", "300", "a duration from 1s to 8760h, such as 15m"},
		{"clock.accepted", "9999-12-31T23:59:59-01:00", "now, never or a time as in RFC 3339"},
		{"clock.accepted", "soon", "now, never or a time as in RFC 3339, such as now"},
		{"deadletter.quote", "1025", "from 0 to 1024"},
		{"expiry.pause.summer", "yes", "true or false"},
		{"expiry.pause.summer", "TRUE", "true or false"},
		{"expiry.pause.", "true", "letters, digits, _ and -"},
		{"reminder.pause.a b", "true", "letters, digits, _ and -"},
		{"reminder.pause.a.b", "true", "letters, digits, _ and -"},
		{"reminder.colour", "1", "there is no setting \"reminder.colour\"; the settings are"},
		{"colour", "red", "the settings are reminder.batch, reminder.rate, reminder.concurrency, reminder.grace, push.merge, push.cap, push.quiet, push.zone, push.shards, push.batch, deadletter.quote, clock.tolerance, clock.accepted, tables.keep, backup.max_age, http.rate, http.burst, expiry.pause.CAMPAIGN, reminder.pause.CAMPAIGN"},
		{"", "", "there is no setting"},
		{"reminder.batch\x1b[2J" + strings.Repeat("x", 1000), "1", `"reminder.batch\x1b[2J`},
	} {
		_, err := check(c.setting, c.value)
		var invalid *InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 500 {
			t.Errorf("%q %q: %v\n want %q", c.setting, c.value, err, c.want)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\x1b\n") {
			t.Errorf("%q is shown as it is", c.setting)
		}
	}
}

func TestDefaultsThatMakeNoSenseAreRefused(t *testing.T) {
	s := Default()
	s.ReminderBatch, s.ReminderGrace, s.ExpiryPaused = 0, time.Millisecond, map[string]bool{"a.b": true}
	err := s.Validate()
	if err == nil || !strings.Contains(err.Error(), `reminder.batch can not be "0": it must be a whole number from 1 to 5000`) || !strings.Contains(err.Error(), `reminder.grace can not be "1ms"`) || !strings.Contains(err.Error(), "expiry.pause.a.b") {
		t.Errorf("%v", err)
	}
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
	for _, d := range Describe() {
		if name := strings.ReplaceAll(d.Name, "CAMPAIGN", "summer"); d.About == "" || d.Bounds == "" {
			t.Errorf("%+v", d)
		} else if _, err := check(name, d.Default); err != nil {
			t.Errorf("the default of %s: %v", name, err)
		}
	}
}

// What is stored is the time at which it was set, not the word: servers read it at other times.
func TestNowIsStoredAsATime(t *testing.T) {
	before := time.Now()
	got, err := check("clock.accepted", "now")
	at, parsed := time.Parse(time.RFC3339Nano, got)
	if err != nil || parsed != nil || at.Before(before.Add(-time.Microsecond)) || at.After(time.Now()) {
		t.Errorf("%q, %v, %v", got, err, parsed)
	}
}
