package settings

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth/authtest"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestTheHistory: a change records what it replaced, who made it and when, and goes on counting after what was written by hand.
func TestTheHistory(t *testing.T) {
	js := streamtest.Start(t, authtest.Servers(1)).JetStream(t)
	clock := streamtest.NewClock()
	s, err := Open(t.Context(), js, Options{Logger: streamtest.Logger(t), Clock: clock})
	streamtest.Must(t, err)
	first, again := set(t, s, "reminder.batch", "200"), set(t, s, "reminder.batch", "300")
	if first.N != 1 || string(first.Was) != "null" || string(first.Value) != "200" || first.By != "ann@ops" || !first.At.Equal(clock.Now()) || first.Revision != 1 {
		t.Errorf("%+v", first)
	}
	if again.N != 2 || string(again.Was) != "200" || string(again.Value) != "300" {
		t.Errorf("%+v", again)
	}
	for key, value := range map[string][]byte{registry.Key(3): batch(7), "elsewhere": nil} {
		streamtest.Must(t, s.registry.Add(t.Context(), key, value))
	}
	streamtest.Must(t, s.registry.Add(t.Context(), registry.Key(9_999_999), []byte("nonsense")))
	if c := set(t, s, "reminder.rate", "10"); c.N != 4 || c.Revision != 6 {
		t.Errorf("after what was written by hand: %+v", c)
	}
	all := history(t, s)
	if len(all) != 5 || !reflect.DeepEqual(all[:2], []Change{first, again}) || all[2].Ignored != "" || all[3].Ignored == "" || string(all[3].Value) != `"nonsense"` || string(all[4].Value) != "10" {
		t.Errorf("%+v", all)
	}
}

// TestSeveralAtOnce: all or none, as one change, for the version that its author has read.
func TestSeveralAtOnce(t *testing.T) {
	s := open(t, streamtest.Start(t, authtest.Servers(1)).JetStream(t))
	both := Object{"reminder.batch": json.RawMessage(`200`), "reminder.grace": json.RawMessage(`"90s"`)}
	version := uint64(0)
	done, err := s.Set(t.Context(), both, &version, ann)
	if err != nil || len(done) != 2 || done[0].N != 1 || done[1].N != 1 || string(done[1].Value) != `"1m30s"` || done[0].Revision == 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	if _, err := s.Set(t.Context(), both, &version, ann); !errors.Is(err, ErrChanged) {
		t.Errorf("for a version before: %v", err)
	}
	both["reminder.rate"] = json.RawMessage(`-1`)
	if _, err := s.Set(t.Context(), both, nil, ann); err == nil {
		t.Error("a bad value is taken with good ones")
	}
	if state, err := s.Read(t.Context()); err != nil || state.Revision != done[0].Revision || len(history(t, s)) != 2 {
		t.Errorf("%+v, %v, %+v", state, err, history(t, s))
	}
}

// TestNothingIsStoredOfWhatMakesNoSense, nor is anything sent.
func TestNothingIsStoredOfWhatMakesNoSense(t *testing.T) {
	s := open(t, nil)
	for _, c := range []struct{ setting, value, by, want string }{
		{"reminder.batch", "5001", "ann", "from 1 to 5000"},
		{"reminder.colour", "red", "ann", "there is no setting"},
		{"reminder.batch", "1", "", "by is"},
	} {
		_, err := s.Set(t.Context(), PatchOf(c.setting, c.value).Flat(), nil, access.Author{Principal: access.Principal{Name: c.by}})
		var invalid *InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T %v, want %q", err, err, c.want)
		}
	}
	if err := s.Skip(t.Context(), "SCRIP_EVT_0", 7, "ab", ""); err == nil {
		t.Error("somebody without a name skips a message")
	}
}

// TestAMessageIsSkippedOnce: a second call has no effect, and the skip list is no part of the history.
func TestAMessageIsSkippedOnce(t *testing.T) {
	js := streamtest.Start(t, authtest.Servers(1)).JetStream(t)
	s := open(t, js)
	for _, by := range []string{"ann", "bob"} {
		streamtest.Must(t, s.Skip(t.Context(), "SCRIP_EVT_0", 7, strings.Repeat("ab", 32), by))
	}
	if bounds, err := eventlog.Bucket(js, topology.SettingsStream).Bounds(t.Context()); err != nil || bounds.Last != 1 {
		t.Errorf("the bucket ends at %d, %v", bounds.Last, err)
	}
	if all := history(t, s); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}
