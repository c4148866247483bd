package eventlog_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
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
	if n := testing.AllocsPerRun(100, func() {
		for range eventlog.Lines(payload) {
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
