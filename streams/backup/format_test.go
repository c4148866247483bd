package backup

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/golden"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// The manifest, and the seal of SHA256SUMS, are as the golden files have them.
func TestTheFormat(t *testing.T) {
	at := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	m := Manifest{
		Format: 1, Log: "0f6e1a2b-log", Lanes: 2, KeyFingerprint: "ab12", LogFormat: 1, LogCreated: at, Started: at.Add(time.Hour), Ended: at.Add(2 * time.Hour),
		Scrip: "1.0.0", NATS: "2.15.2", Key: true,
		Unread: []eventlog.Unread{{Stream: topology.EvtStream(1), Sequence: 7, Why: "newer"}},
	}
	for i, name := range streamNames(m.Lanes, func(string) bool { return true }) {
		n := uint64(i + 1)
		m.Streams = append(m.Streams, Stream{Name: name, Messages: 10 * n, Bytes: 1000 * n, First: n, Last: 11*n - 1, Size: int64(500 * n)})
	}
	text, err := m.encode()
	streamtest.Must(t, err)
	var got Manifest
	if err := json.Unmarshal(golden.Bytes(t, "manifest.golden.json", text), &got); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("it is read as %+v, %v", got, err)
	}
	if err := got.check(); err != nil {
		t.Errorf("the manifest of the golden file: %v", err)
	}
	// Checksums that fit do not make a backup of what is newer, or lists other streams.
	for _, tc := range []struct {
		name, want string
		change     func(m *Manifest)
	}{
		{"newer backup", "the backup has format 2 with log format 1, this program restores formats 1 and 1; use the newer scrip", func(m *Manifest) { m.Format++ }},
		{"newer log", "use the newer scrip", func(m *Manifest) { m.LogFormat = topology.Format + 1 }},
		{"no format", "does not name its log", func(m *Manifest) { m.Format = 0 }},
		{"no log", "does not name its log", func(m *Manifest) { m.Log = "" }},
		{"too few streams", "lists 3 streams, a log of 2 lanes has", func(m *Manifest) { m.Streams = m.Streams[:3] }},
		{"a path", "../x", func(m *Manifest) { m.Streams[len(m.Streams)-1].Name = "../x" }},
	} {
		changed := m
		changed.Streams = slices.Clone(m.Streams)
		tc.change(&changed)
		if err := changed.check(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	record := recordOf(&m, "/backups/a", "s1")
	value, err := json.Marshal(record)
	streamtest.Must(t, err)
	var back Record
	if err := json.Unmarshal(golden.Bytes(t, "record.golden.json", append(value, '\n')), &back); err != nil || back != record {
		t.Errorf("the record is read as %+v, %v", back, err)
	}
	sums := fmt.Sprintf("%x  manifest.json\n", sha256.Sum256(text))
	golden.Bytes(t, "SHA256SUMS.golden.seal", []byte(sealOf(seal.Derive([32]byte{1, 2, 3}, m.Log), []byte(sums))))
}

// A copy without a fixed end is refused: NATS before 2.15 sends such ones.
func TestACopyWithoutAFixedEnd(t *testing.T) {
	nc := streamtest.Start(t).Conn(t)
	sub, err := nc.SubscribeSync(nc.NewInbox())
	streamtest.Must(t, err)
	streamtest.Must(t, nc.Publish(sub.Subject, []byte("a file of the stream")))
	s := &snapshot{name: "SCRIP_EVT_0", sub: sub}
	if _, err := s.receive(t.Context(), new(strings.Builder), func(int64) {}); err == nil || !strings.Contains(err.Error(), "run NATS 2.15 or later") {
		t.Errorf("%v", err)
	}
}
