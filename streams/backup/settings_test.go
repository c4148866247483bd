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

// TestSettingsComeBack: what was paused stays paused, with who did it, and can be changed again. Of a
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
	to := streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t)
	restore(t, dir, to, 0)
	store, got := history(t, to)
	if len(want) != 3 || !reflect.DeepEqual(got, want) {
		t.Fatalf("restored %+v\n of %+v", got, want)
	}
	stream, err := to.Stream(t.Context(), topology.SettingsStream)
	if err != nil {
		t.Fatal(err)
	}
	if c := stream.CachedInfo().Config; c.Replicas != 1 || !c.DenyPurge || !c.DiscardNewPerSubject {
		t.Errorf("%+v", c)
	}
	if c, err := store.Set(t.Context(), "reminder.pause.summer", "false", "bob@ops"); err != nil || c.N != 4 || c.Was != "true" {
		t.Errorf("%+v, %v", c, err)
	}
}
