package settings

import (
	"context"
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// stored is a bucket of settings: how its stream is configured, and all messages.
type stored struct {
	Config   jetstream.StreamConfig `json:"config"`
	Messages []storedMessage        `json:"messages"`
}

type storedMessage struct {
	Subject string      `json:"subject"`
	Header  nats.Header `json:"header"`
	Data    string      `json:"data"`
}

// older returns a bucket as commit 68e2303 stored it, by its calls of Set and Skip and, by "hand", what those never store.
func older(t *testing.T) (b stored) {
	t.Helper()
	text, err := os.ReadFile("testdata/stored-68e2303.json")
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (m storedMessage) publish(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: m.Subject, Header: m.Header, Data: []byte(m.Data)}); err != nil {
		t.Fatal(err)
	}
}

// TestABucketOfAnOlderVersionIsReadAndContinued: its history, the settings in force and the skip list.
func TestABucketOfAnOlderVersionIsReadAndContinued(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	b := older(t)
	if _, err := js.CreateStream(t.Context(), b.Config); err != nil {
		t.Fatal(err)
	}
	for _, m := range b.Messages {
		m.publish(t, js)
	}
	s := open(t, js, 1)
	at := func(text string) time.Time {
		t.Helper()
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	const zoe = `Zoë <"on call"> & co`
	want := []Change{
		{1, 1, "reminder.batch", "200", "default", "ann@ops-1", at("2026-11-20T09:01:00.123456789Z"), ""},
		{2, 2, "reminder.pause.summer", "true", "default", zoe, at("2026-11-20T09:02:00.123456789Z"), ""},
		{3, 3, "reminder.grace", "1m30s", "default", "ann@ops-1", at("2026-11-20T09:03:00.123456789Z"), ""},
		{4, 5, "reminder.colour", "red", "default", "hand", at("2026-11-20T10:00:00Z"), "there is no setting"},
		{9999999, 6, "reminder.batch", "9", "200", "hand", at("2026-11-20T10:00:00Z"), "its number is more than 1000000 above 4"},
		{5, 7, "clock.accepted", "2026-11-20T09:30:00.5Z", "default", "bob@ops-2", at("2026-11-20T09:05:00.123456789Z"), ""},
		{6, 8, "reminder.grace", "default", "1m30s", "bob@ops-2", at("2026-11-20T09:06:00.123456789Z"), ""},
		{7, 9, "reminder.pause.winter", "true", "default", "bob@ops-2", at("2026-11-20T09:07:00.123456789Z"), ""},
	}
	all := history(t, s)
	if len(all) != len(want) {
		t.Fatalf("%d changes, want %d: %+v", len(all), len(want), all)
	}
	for i, got := range all {
		why := want[i].Ignored
		if want[i].Ignored = got.Ignored; got != want[i] || (got.Ignored == "") != (why == "") || !strings.Contains(got.Ignored, why) {
			t.Errorf("%+v\n want %+v, ignored %q", got, want[i], why)
		}
	}
	l := watch(t, s)
	holds(t, l, "all of it", func(s *Settings) bool {
		return s.ReminderBatch == 200 && s.RemindersPaused["summer"] && s.RemindersPaused["winter"] && s.ReminderGrace == Default().ReminderGrace &&
			s.ClockAccepted.Equal(at("2026-11-20T09:30:00.5Z"))
	})
	metrics(t, l, 9, 2)

	entry := strings.Split(strings.TrimPrefix(b.Messages[3].Subject, subjectPrefix), ".")
	sequence, err := strconv.ParseUint(entry[2], 10, 64)
	if err != nil || entry[0] != "skip" {
		t.Fatalf("%v, %v", entry, err)
	}
	if err := s.Skip(t.Context(), entry[1], sequence, entry[3], "ann"); err != nil {
		t.Fatal(err)
	}
	if bounds, err := eventlog.Settings(js).Bounds(t.Context()); err != nil || bounds.Last != 9 {
		t.Errorf("the message is on the skip list already; the bucket ends at %d, %v", bounds.Last, err)
	}
	if c := set(t, s, "reminder.pause.summer", "false"); c.N != 8 || c.Revision != 10 || c.Was != "true" {
		t.Errorf("%+v", c)
	}
	holds(t, l, "the pause ends", func(s *Settings) bool { return !s.RemindersPaused["summer"] && s.ReminderBatch == 200 })
}

// TestTheSameIsStoredAsByAnOlderVersion: the same calls give the same bucket, so servers and commands of both versions can
// share one.
func TestTheSameIsStoredAsByAnOlderVersion(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	want := older(t)
	for _, m := range want.Messages {
		var r struct {
			Setting, Value, By, Stream, SHA256, At string
			Sequence                               uint64
		}
		if err := json.Unmarshal([]byte(m.Data), &r); err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339Nano, r.At)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), js, Options{Replicas: 1, Logger: streamtest.Logger(t), Now: func() time.Time { return at }})
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case r.By == "hand":
			m.publish(t, js)
		case r.Stream != "":
			err = s.Skip(t.Context(), r.Stream, r.Sequence, r.SHA256, r.By)
		default:
			_, err = s.Set(t.Context(), r.Setting, r.Value, r.By)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := contents(t, js)
	if !reflect.DeepEqual(got.Config, want.Config) {
		t.Errorf("the stream is\n %+v, it was\n %+v", got.Config, want.Config)
	}
	if len(got.Messages) != len(want.Messages) {
		t.Fatalf("%d messages, want %d", len(got.Messages), len(want.Messages))
	}
	for i := range want.Messages {
		if !reflect.DeepEqual(got.Messages[i], want.Messages[i]) {
			t.Errorf("message %d is\n %+v, it was\n %+v", i+1, got.Messages[i], want.Messages[i])
		}
	}
}

// contents reads a bucket.
func contents(t *testing.T, js jetstream.JetStream) (b stored) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stream, err := js.Stream(ctx, topology.SettingsStream)
	if err != nil {
		t.Fatal(err)
	}
	info := stream.CachedInfo()
	b.Config = info.Config
	b.Config.Metadata = nil // nats-server's
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		b.Messages = append(b.Messages, storedMessage{m.Subject, m.Header, string(m.Data)})
	}
	return b
}
