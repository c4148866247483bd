package settings

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/golden"
)

// The keys and values of changes, and of the skip list, are as the golden file has them: one line each.
func TestTheFormat(t *testing.T) {
	at := time.Date(2026, 11, 20, 9, 1, 0, 123456789, time.UTC)
	changes := []Change{
		{N: 1, Setting: "reminder.batch", Value: "200", Was: ToDefault, By: "ann@ops-1", At: at},
		{N: 2, Setting: "reminder.pause.summer", Value: "true", Was: "false", By: `Zoë <"on call"> & co`, At: at.Add(time.Minute)},
		{N: 10, Setting: "reminder.grace", Value: ToDefault, Was: "1m30s", By: "bob", At: at.Truncate(time.Second)},
		{N: 12345678901, Setting: "clock.accepted", Value: "2026-11-20T09:30:00.5Z", Was: ToDefault, By: "bob", At: at},
	}
	var lines bytes.Buffer
	for _, c := range changes {
		value, err := c.encode()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "%s %s\n", changeKey(c.N), value)
	}
	hash := "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	value, err := (&skipRecord{"SCRIP_EVT_0", 7, hash, "ann", at.Format(time.RFC3339Nano)}).encode()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&lines, "%s %s\n", eventlog.SkipKey("SCRIP_EVT_0", 7, hash), value)
	stored := bytes.Split(golden.Bytes(t, "bucket.golden", lines.Bytes()), []byte("\n"))
	for i, want := range changes {
		key, value, _ := bytes.Cut(stored[i], []byte(" "))
		if got := parse(string(key), value, false); got != want {
			t.Errorf("%s is read as %+v, want %+v", stored[i], got, want)
		}
	}
}
