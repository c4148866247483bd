package audit

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/golden"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

// person is an actor; its key's id is "" for one with the credentials of the data directory.
type person struct{ name, key string }

func (p person) Actor() (name, key string) { return p.name, p.key }

var ann, bob = person{"ann", "01h8z3qk"}, person{"local:bob", ""}

// stream is a log with its audit stream.
func stream(t *testing.T) jetstream.JetStream {
	t.Helper()
	js := streamtest.Start(t).JetStream(t)
	if _, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, KeyFingerprint: "k", CmdMaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	return js
}

// TestEntriesAreKept: they are read in order, by actor, kind and time, and nothing removes one.
func TestEntriesAreKept(t *testing.T) {
	js := stream(t)
	at := time.Now().UTC().Truncate(time.Second)
	l := Open(js, nil)
	if all, next, err := l.Read(t.Context(), Filter{}, 10); err != nil || next != 0 || len(all) != 0 {
		t.Errorf("an empty stream: %v %d %v", all, next, err)
	}
	for i, e := range []Entry{By(ann, Keys, "create", "x"), By(bob, Settings, "set", "y"), By(ann, Export, "codes", strings.Repeat("é", 400)), By(ann, Keys, "revoke", "x")} {
		e.At = at.Add(time.Duration(i) * time.Minute)
		streamtest.Must(t, l.Append(t.Context(), e))
	}
	if _, err := js.Publish(t.Context(), topology.AuditSubject, []byte("\xffnot an entry")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		filter Filter
		limit  int
		want   string
		next   uint64
	}{
		{Filter{}, 10, " revoke codes set create", 0},
		{Filter{}, 2, " revoke", 4},
		{Filter{Before: 4}, 2, "codes set", 2},
		{Filter{Actor: "ann"}, 10, "revoke codes create", 0},
		{Filter{Actor: "01h8z3qk", Kind: Keys}, 10, "revoke create", 0},
		{Filter{Actor: "local:bob"}, 10, "set", 0},
		{Filter{Kind: LookUp}, 10, "", 0},
		{Filter{Since: at.Add(time.Minute), Until: at.Add(3 * time.Minute), Actor: "ann"}, 10, "codes", 0},
	} {
		all, next, err := l.Read(t.Context(), c.filter, c.limit)
		var got []string
		for _, e := range all {
			got = append(got, e.Action)
		}
		if strings.Join(got, " ") != c.want || next != c.next || err != nil {
			t.Errorf("%+v: %q %d %v", c.filter, got, next, err)
		}
	}
	stream, err := js.Stream(t.Context(), topology.AuditStream)
	streamtest.Must(t, err)
	if stream.Purge(t.Context()) == nil || stream.DeleteMsg(t.Context(), 1) == nil {
		t.Error("an entry can be removed")
	}
}

// TestALongStreamIsReadInParts: what no filter selects costs a bounded number of entries, and goes on where that ended.
func TestALongStreamIsReadInParts(t *testing.T) {
	js := stream(t)
	const entries = readMost + readPart + 7
	for n := range entries {
		kind := LookUp
		if n == 3 || n == entries-1 {
			kind = Keys
		}
		_, err := js.PublishAsync(topology.AuditSubject, fmt.Appendf(nil, `{"at":"2026-11-26T00:00:00Z","kind":"%s","actor":"ann","about":"%d"}`, kind, n))
		streamtest.Must(t, err)
		if n%1000 == 0 || n == entries-1 { // more than some thousand at once are refused
			<-js.PublishAsyncComplete()
		}
	}
	l := Open(js, nil)
	newest, next, err := l.Read(t.Context(), Filter{Kind: Keys}, 10)
	if err != nil || len(newest) != 1 || newest[0].Sequence != entries || next != entries-readMost+1 {
		t.Fatalf("%+v, next %d, %v", newest, next, err)
	}
	oldest, next, err := l.Read(t.Context(), Filter{Kind: Keys, Before: next}, 10)
	if err != nil || len(oldest) != 1 || oldest[0].Sequence != 4 || next != 0 {
		t.Errorf("%+v, next %d, %v", oldest, next, err)
	}
	if recent, next, err := l.Read(t.Context(), Filter{Since: time.Now().Add(time.Hour)}, 10); err != nil || len(recent) != 0 || next != 0 {
		t.Errorf("since a time to come: %+v, next %d, %v", recent, next, err)
	}
}

// TestLogInsAreBounded: one an hour for each key and way, with what else it allows; one that was not stored is recorded at the next.
func TestLogInsAreBounded(t *testing.T) {
	js := stream(t)
	clock := streamtest.NewClock()
	l := Open(js, clock)
	l.recorded.Watch()
	logsIn := func(who Actor, via string, failed func(error)) {
		first, second := By(who, Login, "support", ""), By(who, Export, Raw, "")
		first.Via, second.Via = via, via
		l.LoggedIn(failed, first, second)
	}
	count := func(want int) {
		t.Helper()
		l.recorded.Wait(t)
		for _, kind := range []Kind{Login, Export} {
			if all, _, err := l.Read(t.Context(), Filter{Kind: kind}, 100); err != nil || len(all) != want {
				t.Errorf("%d entries of kind %s are recorded, want %d; %v", len(all), kind, want, err)
			}
		}
	}
	none := func(err error) { t.Error(err) }
	logsIn(ann, "nats", none)
	count(1)
	for range 1000 {
		logsIn(ann, "nats", none)
	}
	logsIn(ann, "http", none)
	count(2)
	logsIn(ann, "http", none)
	clock.Move(loginEvery)
	logsIn(ann, "nats", none)
	count(3)
	// Without its stream nothing is stored, and the failure is reported.
	streamtest.Must(t, js.DeleteStream(t.Context(), topology.AuditStream))
	failed := make(chan error, 2)
	for range 2 {
		logsIn(bob, "http", func(err error) { failed <- err })
		if err := <-failed; err == nil {
			t.Error("a log-in without a stream is recorded")
		}
	}
	if err := l.Append(t.Context(), By(bob, Export, "codes", "")); err == nil {
		t.Error("an entry without a stream is recorded")
	}
	var nothing *Log
	nothing.LoggedIn(none, By(ann, Login, "support", ""))
	if err := nothing.Append(t.Context(), Entry{}); err != nil {
		t.Error(err)
	}
}

// A line of the stream is as the golden file has it.
func TestTheFormat(t *testing.T) {
	at := time.Date(2027, 1, 15, 8, 0, 0, 123456000, time.UTC)
	want := []Entry{
		{At: at, Kind: Keys, Actor: "ann", Key: "01h8z3qk", Action: "create", About: "01h8z3qm shop <eu> producer", Via: "http", From: "192.0.2.7"},
		{At: at.Add(time.Hour), Kind: Login, Actor: "local:bob@ops", Action: "operator"},
	}
	var lines []byte
	for _, e := range want {
		line, err := e.encode()
		streamtest.Must(t, err)
		lines = append(lines, line...)
	}
	i := 0
	for line := range bytes.Lines(golden.Bytes(t, "entries.golden", lines)) {
		if got := parse(line, time.Time{}); got != want[i] {
			t.Errorf("%s is read as %+v", line, got)
		}
		i++
	}
}
