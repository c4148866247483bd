package eventlog_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/golden"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestGolden: an event message, rebases and a reminder message of log format 1, sealed, as the stream holds them. Times are cut
// to the microsecond, in UTC.
func TestGolden(t *testing.T) {
	at := time.Date(2027, 1, 15, 10, 0, 0, 123456789, time.FixedZone("x", 7200))
	log := logOf.WithKey([32]byte{1})
	digest := "00112233445566778899aabbccddeeff"
	for name, m := range map[string]struct {
		stream eventlog.Stream
		header eventlog.Header
		lines  string
	}{
		"event": {eventlog.Events(nil, lane), eventlog.Header{Commands: [2]uint64{7, 9}, CommandTime: at, LaneTime: at.Add(time.Second), Owner: "owner-1"},
			`{"type":"campaign.paused","campaign":"summer","at":"2027-01-15T08:00:01.123456Z","id":"c-2"}` + "\n"},
		"rebasing step": {eventlog.Events(nil, lane), eventlog.Header{Commands: [2]uint64{41, 44}, CommandTime: at.Truncate(time.Second), LaneTime: at, Owner: "owner-2", Rebase: 41}, ""},
		"rebase":        {eventlog.Events(nil, lane), eventlog.Header{Commands: [2]uint64{41, 40}, LaneTime: at, Owner: "owner-2", Rebase: 41}, ""},
		"reminder": {eventlog.Reminders(nil, lane), eventlog.Header{Owner: "owner-1", Source: eventlog.Source{Sequence: 5, Line: 2, LastR: 1000}, SourceDigest: digest, Priority: "high"},
			`{"type":"reminder.due","campaign":"summer","at":"2027-01-15T08:00:00Z","kind":"opens","due_at":"2027-01-15T08:00:00Z","customer_id":"ann"}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			stream := m.stream.In(log)
			stored := golden.Bytes(t, strings.ReplaceAll(name, " ", "_")+".golden", text(stream.Sealer().Encode(m.header, 8, []byte(m.lines)), m.lines))
			raw := &eventlog.Raw{Header: nats.Header{}, Sequence: 8, Time: at}
			head, payload, _ := bytes.Cut(stored, []byte("\n\n"))
			for line := range strings.Lines(string(head)) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				raw.Header.Set(name, value)
			}
			raw.Data = payload
			got, err := stream.JudgeWith(nil).Read(raw)
			want := m.header
			want.CommandTime, want.LaneTime = cut(want.CommandTime), cut(want.LaneTime)
			if err != nil || got.Header != want || string(got.Payload) != m.lines || got.Sequence != 8 || !got.Time.Equal(at) {
				t.Errorf("the file holds %+v, %v\nwant %+v", got, err, want)
			}
			raw.Header.Set(topology.HeaderFormat, "2")
			raw.Header.Set(topology.HeaderSeal, log.Seal.Message(stream.Name(), 8, raw.Header, raw.Data))
			if _, err := stream.JudgeWith(nil).Read(raw); err == nil || !strings.Contains(err.Error(), "format 2, this program knows 1; use a newer scrip") {
				t.Errorf("a higher format: %v", err)
			}
		})
	}
}

func cut(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.UTC().Truncate(time.Microsecond)
}

// text is a message as a golden file has it: the headers, sorted, an empty line, the payload.
func text(h nats.Header, payload string) []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(h)) {
		fmt.Fprintf(&out, "%s: %s\n", name, h.Get(name))
	}
	return append(out.Bytes(), "\n"+payload...)
}
