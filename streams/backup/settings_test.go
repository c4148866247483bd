package backup_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// history reads the history of the settings.
func history(t *testing.T, js jetstream.JetStream) (*settings.Store, []settings.Change) {
	t.Helper()
	store, err := settings.Open(t.Context(), js, settings.Options{Logger: streamtest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	all, err := store.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return store, all
}

// TestSettingsComeBack: what was paused stays paused, with who did it, on one node or three, and can be changed again. Of a
// log where nothing was ever set there is no such stream.
func TestSettingsComeBack(t *testing.T) {
	s := streamtest.Start(t, streamtest.Lanes(lanes))
	r := newRig(t, s.JetStream(t), 1)
	if _, m := take(t, r.js); slices.ContainsFunc(m.Streams, func(s backup.Stream) bool { return s.Name == topology.SettingsStream }) {
		t.Errorf("without settings: %+v", m)
	}
	store, _ := history(t, r.js)
	for _, change := range [][2]string{{"reminder.pause.summer", "true"}, {"reminder.rate", "100"}, {"reminder.rate", "200"}} {
		if _, err := store.Set(t.Context(), change[0], change[1], "ann@ops"); err != nil {
			t.Fatal(err)
		}
	}
	_, want := history(t, r.js)
	dir, _ := take(t, r.js)
	check := func(js jetstream.JetStream, replicas int) {
		t.Helper()
		store, got := history(t, js)
		if len(want) != 3 || !reflect.DeepEqual(got, want) {
			t.Fatalf("restored %+v\n of %+v", got, want)
		}
		stream, err := js.Stream(t.Context(), topology.SettingsStream)
		if err != nil {
			t.Fatal(err)
		}
		if c := stream.CachedInfo().Config; c.Replicas != replicas || !c.DenyPurge || !c.DiscardNewPerSubject {
			t.Errorf("%+v", c)
		}
		if c, err := store.Set(t.Context(), "reminder.pause.summer", "false", "bob@ops"); err != nil || c.N != 4 || c.Was != "true" {
			t.Errorf("%+v, %v", c, err)
		}
	}
	to := streamtest.Start(t, streamtest.Lanes(lanes))
	restore(t, dir, to.JetStream(t), 0)
	check(to.JetStream(t), 1)
	c := streamtest.StartCluster(t, streamtest.Lanes(lanes))
	restore(t, dir, c.JetStream(t), 3)
	check(c.JetStream(t), 3)
}
