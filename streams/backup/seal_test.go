package backup_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestWhatCannotBeReadIsCopied: a message of a newer version, and a forged one, are in the backup and in what is restored
// from it. What readers pass over there they pass over here, and all seals are valid in the same places.
func TestWhatCannotBeReadIsCopied(t *testing.T) {
	r := newRig(t, streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t), 1)
	r.work(nil)
	held := map[string]string{}
	for n := range lanes {
		r.request(n, create(campaign(n)))
		r.claims(n, 0, 10, held)
	}
	r.stop()
	log := r.log.WithKey(testKey)
	bounds, err := eventlog.Events(r.js, 1).Bounds(t.Context())
	streamtest.Must(t, err)
	newer := eventlog.Events(nil, 1).In(log).Sealer().Encode(eventlog.Header{Owner: "a newer scrip"}, bounds.Last+1, nil)
	newer.Set(topology.HeaderFormat, "3")
	newer.Set(topology.HeaderSeal, log.Seal.Message(topology.EvtStream(1), bounds.Last+1, newer, nil))
	forged := nats.Header{topology.HeaderFormat: {"9"}, topology.HeaderOwner: {"x"}}
	for _, msg := range []*nats.Msg{
		{Subject: topology.Evt(1), Header: newer}, {Subject: topology.Evt(1), Header: forged},
		{Subject: topology.Evt(0), Header: forged}, {Subject: topology.Rmd(0), Header: forged},
	} {
		if _, err := r.js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir() + "/before"
	m, err := backup.Create(t.Context(), r.js, dir, backup.CreateOptions{Key: testKey, Logger: streamtest.Logger(t)})
	streamtest.Must(t, err)
	want := eventlog.Unread{Stream: topology.EvtStream(1), Sequence: bounds.Last + 1}
	if len(m.Unread) != 1 || m.Unread[0].Stream != want.Stream || m.Unread[0].Sequence != want.Sequence || m.Unread[0].Why == "" {
		t.Errorf("not read: %+v", m.Unread)
	}

	// An operator has it passed over: now all of it can be read, here and where it is restored.
	events := eventlog.Events(r.js, 1).In(log)
	hash, _, err := events.CheckSkip(t.Context(), want.Sequence)
	streamtest.Must(t, err)
	store, _ := history(t, r.js)
	for _, change := range [][2]string{{"reminder.pause.summer", "true"}, {"reminder.rate", "200"}} {
		if _, err := store.Set(t.Context(), settings.PatchOf(change[0], change[1]).Flat(), nil, ann); err != nil {
			t.Fatal(err)
		}
	}
	_, before := history(t, r.js)
	streamtest.Must(t, store.Skip(t.Context(), events.Name(), want.Sequence, hash, "ann"))
	dir, m = take(t, r.js)
	if len(m.Unread) != 0 {
		t.Errorf("not read: %+v", m.Unread)
	}
	other := streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t)
	restore(t, dir, other, 1)
	there := newRig(t, other, 1)
	store, restored := history(t, other)
	if len(restored) != 2 || !reflect.DeepEqual(restored, before) {
		t.Errorf("the settings are %+v, were %+v", restored, before)
	}
	if c, err := store.Set(t.Context(), settings.PatchOf("reminder.pause.summer", "false").Flat(), nil, ann); err != nil || c[0].N != 3 || string(c[0].Was) != "true" {
		t.Errorf("what was paused stays so, and can be changed again: %+v, %v", c, err)
	}
	for n := range lanes {
		reader, err := eventlog.Events(other, n).In(there.log.WithKey(testKey)).Open(t.Context(), log.UUID, eventlog.Position{Log: log.UUID, Lane: n}, eventlog.ReaderOptions{Logger: streamtest.Logger(t)})
		streamtest.Must(t, err)
		valid := 0
		err = reader.CatchUp(t.Context(), func(batch []eventlog.Message) error { valid += len(batch); return nil })
		if passed := int(reader.Foreign()); err != nil || passed != n+1 || valid != int(reader.Sequence())-passed {
			t.Errorf("lane %d: %d messages, %d passed over, %v", n, valid, passed, err)
		}
		reader.Close()
	}
	there.work(func(o *lane.Options) { o.Logger = streamtest.Logger(t) })
	there.repeats(held)
	if _, err := eventlog.Events(other, 1).In(log).Lookup(t.Context(), want.Sequence); !errors.Is(err, eventlog.ErrSkipped) {
		t.Errorf("looking it up: %v", err)
	}
}

// history reads the history of the settings.
func history(t *testing.T, js jetstream.JetStream) (*settings.Store, []settings.Change) {
	t.Helper()
	store, err := settings.Open(t.Context(), js, settings.Options{Logger: streamtest.Logger(t)})
	streamtest.Must(t, err)
	all, err := store.History(t.Context())
	streamtest.Must(t, err)
	return store, all
}
