package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/golden"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// The keys and values of changes, and of the skip list, are as the golden file has them: one line each.
func TestTheFormat(t *testing.T) {
	at := time.Date(2026, 11, 20, 9, 1, 0, 123456789, time.UTC)
	changes := []registry.Change[record]{
		{N: 1, Record: record{{Setting: "reminder.batch", Value: "200", Was: ToDefault}, {Setting: "reminder.rate", Value: "10", Was: "9"}}, By: "ann@ops-1", At: at},
		{N: 2, Record: record{{Setting: "reminder.pause.summer", Value: "true", Was: "false"}}, By: `Zoë <"on call"> & co`, At: at.Add(time.Minute)},
		{N: 10, Record: record{{Setting: "reminder.grace", Value: ToDefault, Was: "1m30s"}}, By: "bob", At: at.Truncate(time.Second)},
		{N: 11, Record: record{{Setting: "clock.accepted", Value: "2026-11-20T09:30:00.5Z", Was: ToDefault}}, By: "bob", At: at},
	}
	var lines bytes.Buffer
	for i := range changes {
		streamtest.Must(t, changes[i].Encode())
		fmt.Fprintf(&lines, "%s %s\n", registry.Key(changes[i].N), changes[i].Value)
	}
	hash := "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	value, err := json.Marshal(skipRecord{"SCRIP_EVT_0", 7, hash, "ann", at})
	streamtest.Must(t, err)
	fmt.Fprintf(&lines, "%s %s\n", eventlog.SkipKey("SCRIP_EVT_0", 7, hash), value)
	stored, f := bytes.Split(golden.Bytes(t, "bucket.golden", lines.Bytes()), []byte("\n")), open(t, nil).registry.Fold()
	for i, want := range changes {
		key, value, _ := bytes.Cut(stored[i], []byte(" "))
		if got := f.Apply(registry.Message{Key: string(key), Value: value}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %+v, want %+v", stored[i], got, want)
		}
	}
}
