package eventlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/golden"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestBadHeadersAreForeign(t *testing.T) {
	good := eventlog.Header{Commands: [2]uint64{7, 9}, CommandTime: time.Now(), LaneTime: time.Now(), Owner: "o"}
	if _, err := eventlog.Parse(nil, nil, 1, time.Time{}); !errors.Is(err, eventlog.ErrForeign) {
		t.Errorf("no headers: %v", err)
	}
	for header, values := range map[string][]string{
		topology.HeaderCommands:    {"", "7", "7-", "-9", "9-7", "0-3", "07-9", "7-9-11", "+7-9", "7-99999999999999999999"},
		topology.HeaderCommandTime: {"", "now", "2026-05-01T12:00:00Z", "2026-05-01T12:00:00.000000+02:00", "2026-05-01T12:00:00.0000000Z"},
		topology.HeaderTime:        {"", "2026-05-01 12:00:00.000000Z"},
		topology.HeaderOwner:       {""},
		topology.HeaderFormat:      {"", "0", "-1", "one", "01", "1.0"},
		topology.HeaderRebase:      {"0", "8", "x"},
	} {
		for _, value := range values {
			h := good.Encode()
			h.Set(header, value)
			if _, err := eventlog.Parse(h, nil, 1, time.Time{}); !errors.Is(err, eventlog.ErrForeign) {
				t.Errorf("%s: %q is %v", header, value, err)
			}
		}
	}
	h := nats.Header{}
	h.Set(topology.HeaderFormat, "3") // of a newer format nothing else is judged
	if _, err := eventlog.Parse(h, nil, 1, time.Time{}); !errors.Is(err, eventlog.ErrNewerFormat) {
		t.Errorf("format 3: %v", err)
	}
	reminder := eventlog.Header{Owner: "o", Source: eventlog.Source{Sequence: 5}, SourceDigest: "00112233445566778899aabbccddeeff"}
	for header, values := range map[string][]string{
		topology.HeaderSource:       {"", "1:2", "0:1:2", "1:2:3:4", "1:a:2"},
		topology.HeaderSourceDigest: {"", "0011", "zz112233445566778899aabbccddeeff"},
	} {
		for _, value := range values {
			h := reminder.Encode()
			h.Set(header, value)
			if _, err := eventlog.ParseReminder(h, nil, 1, time.Time{}); !errors.Is(err, eventlog.ErrForeign) {
				t.Errorf("%s: %q is %v", header, value, err)
			}
		}
	}
}

func TestFollows(t *testing.T) {
	m := func(first, last, rebase uint64) *eventlog.Message {
		return &eventlog.Message{Header: eventlog.Header{Commands: [2]uint64{first, last}, Rebase: rebase}}
	}
	for _, tc := range []struct {
		a, b *eventlog.Message
		want bool
	}{
		{m(1, 3, 0), m(4, 4, 0), true},
		{m(1, 3, 0), m(5, 5, 0), false},
		{m(1, 3, 0), m(3, 5, 0), false},
		{m(1, 3, 0), m(9, 8, 9), true},
		{m(9, 8, 9), m(9, 9, 0), true},
		{m(9, 8, 9), m(10, 10, 0), false},
	} {
		if got := tc.a.Follows(tc.b); got != tc.want {
			t.Errorf("%v after %v: %v", tc.b.Commands, tc.a.Commands, got)
		}
	}
}

func TestDigestCoversHeadersAndPayload(t *testing.T) {
	base := func() nats.Header { h, _ := step("o", 1, ""); return h.Encode() }
	want := eventlog.Digest(base(), []byte("x"))
	if len(want) != 32 {
		t.Errorf("digest %q is not 32 hex digits", want)
	}
	h := base()
	h.Set("Nats-Expected-Last-Sequence", "7") // NATS' headers do not count: a restore may not keep them
	if eventlog.Digest(h, []byte("x")) != want {
		t.Error("a header of NATS changes the digest")
	}
	for name := range base() {
		h := base()
		h.Set(name, h.Get(name)+"0")
		if eventlog.Digest(h, []byte("x")) == want {
			t.Errorf("the digest does not cover %s", name)
		}
	}
	if eventlog.Digest(base(), []byte("y")) == want || eventlog.Digest(base(), nil) == want {
		t.Error("the digest does not cover the payload")
	}
}

func TestDigestIsPermanent(t *testing.T) {
	h := nats.Header{}
	h.Set("Scrip-Owner", "o")
	h.Set("Scrip-Commands", "1-2")
	// printf 'Scrip-Commands: 1-2\r\nScrip-Owner: o\r\n\r\n{}\n' | sha256sum | cut -c1-32
	if got, want := eventlog.Digest(h, []byte("{}\n")), "1571f551b876b9f2921d0c5e8da172fa"; got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

func TestLines(t *testing.T) {
	for payload, want := range map[string]string{
		"": "", "\n": "", "a": "0 a;", "a\n": "0 a;", "a\nb": "0 a;1 b;", "a\n\n\nb\n\n": "0 a;3 b;",
	} {
		got := ""
		for n, l := range eventlog.Lines([]byte(payload)) {
			got += fmt.Sprintf("%d %s;", n, l)
		}
		if got != want {
			t.Errorf("%q has lines %s, want %s", payload, got, want)
		}
	}
	payload := []byte("a\nb\nc\n")
	if n := streamtest.Allocations(func() {
		for range eventlog.Lines(payload) {
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

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
