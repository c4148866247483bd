package push

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/golden"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// text is a message as the golden file shows it.
func text(m *nats.Msg) string {
	lines := []string{m.Subject}
	for name, values := range m.Header {
		lines = append(lines, name+": "+strings.Join(values, ", "))
	}
	slices.Sort(lines[1:])
	return strings.Join(lines, "\n") + "\n" + strings.TrimSuffix(string(m.Data), "\n") + "\n"
}

// A dead letter, an entry that waits and a position are as the golden file has them.
func TestTheFormat(t *testing.T) {
	at := time.Date(2027, 1, 15, 8, 0, 0, 123456789, time.UTC)
	letter := DeadLetter{
		ID: 9, Name: "mobile", Lane: 3, Stream: topology.RmdStream(3), Sequence: 7, Tries: 5, Error: "the gateway refused", At: at,
		Reminders: []Reminder{{Key: "log/summer/9/00ff", Campaign: "summer", Kind: "opens", Before: wire.Period(time.Hour), DueAt: at, At: at, CustomerID: "Zoë <x>", R: 9}},
		id:        messageID{Lane: 3, Sequence: 7, Stored: at.UnixNano(), Line: 2},
	}
	stored, err := letter.message()
	streamtest.Must(t, err)
	wait := entry{Lines: []int{1, 3}, Tries: 2, At: at, Split: true, Process: "p", Answers: 4}
	id := messageID{Lane: 3, Sequence: 7, Stored: at.UnixNano(), Hop: 2, Line: 1}
	waits, err := wait.message(waitSubject("mobile", again, id))
	streamtest.Must(t, err)
	position := record{Format: Format, Log: "log", Events: true, Used: at, Next: 8, Stored: at, Delivered: 1, Dead: 2, Failed: 3, At: at}
	value, err := json.Marshal(position)
	streamtest.Must(t, err)
	golden.Bytes(t, "stored.golden", []byte(text(stored)+"\n"+text(waits)+"\n"+bucketKey("mobile", 3)+"\n"+string(value)+"\n"))

	raw := &natsx.Message{Subject: stored.Subject, Sequence: letter.ID, Header: stored.Header, Data: stored.Data, Time: at}
	if got, err := readLetter(raw); err != nil || !reflect.DeepEqual(got, letter) {
		t.Errorf("the letter is read as %+v, %v", got, err)
	}
	var e entry
	name, c, got, err := parseWaitSubject(waits.Subject)
	if err != nil || json.Unmarshal(waits.Data, &e) != nil || name != "mobile" || c != again || got != id || !reflect.DeepEqual(e, wait) {
		t.Errorf("the entry is read as %s %s %+v %+v, %v", name, c, got, e, err)
	}
	var r record
	if err := json.Unmarshal(bytes.Clone(value), &r); err != nil || r != position {
		t.Errorf("the position is read as %+v, %v", r, err)
	}

	raw.Header.Set(topology.HeaderFormat, "2")
	if _, err := readLetter(raw); err == nil || !strings.Contains(err.Error(), "has format 2, this program reads up to 1; use a newer scrip") {
		t.Errorf("a letter of a newer format: %v", err)
	}
}
