package lane_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// forgeries are messages of a program that may publish on the event stream and does not have the code key.
func (r *rig) forgeries() map[string]*nats.Msg {
	r.t.Helper()
	header := func(first, last uint64, change ...string) nats.Header {
		h := eventlog.Header{Commands: [2]uint64{first, last}, CommandTime: time.Now(), LaneTime: time.Now(), Owner: "mallory"}.Encode()
		for i := 0; i < len(change); i += 2 {
			h.Set(change[i], change[i+1])
		}
		return h
	}
	covered := r.covered()
	all := map[string]*nats.Msg{
		"a higher format":         {Header: nats.Header{topology.HeaderFormat: {"99"}, topology.HeaderOwner: {"x"}}},
		"this format, no seal":    {Header: header(covered+1, covered+1)},
		"a seal of nothing":       {Header: streamtest.Sealed(header(covered+1, covered+1, topology.HeaderFormat, "2"))},
		"a range far ahead":       {Header: header(covered+900, covered+1000)},
		"the next step":           {Header: header(covered+1, covered+1), Data: []byte("{\"type\":\"nonsense\"}\n")},
		"a rebase":                {Header: header(1, 5, topology.HeaderRebase, "1")},
		"a range of decided ones": {Header: header(1, 2)},
	}
	if messages, _ := r.events(); len(messages) > 0 {
		raw, err := eventlog.Events(r.js, 0).Get(r.t.Context(), messages[len(messages)-1].Sequence)
		if err != nil {
			r.t.Fatal(err)
		}
		all["an old step once more"] = &nats.Msg{Header: raw.Header, Data: raw.Data}
	}
	return all
}

// covered is the newest command that the events cover.
func (r *rig) covered() uint64 {
	r.t.Helper()
	tail, err := eventlog.Events(r.js, 0).In(r.log.WithKey(testKey)).Tail(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if tail.Message == nil {
		return 0
	}
	return tail.Message.Next() - 1
}

func (r *rig) publish(msg *nats.Msg) {
	r.t.Helper()
	h := nats.Header{}
	for name, values := range msg.Header {
		if strings.HasPrefix(name, "Scrip-") {
			h[name] = values
		}
	}
	if _, err := r.js.PublishMsg(r.t.Context(), &nats.Msg{Subject: topology.Evt(0), Header: h, Data: msg.Data}); err != nil {
		r.t.Fatal(err)
	}
}

// TestAForgedMessageStopsNothing: whatever is published on the event stream by who does not have the key, the lane goes on,
// while it runs and when it is loaded.
func TestAForgedMessageStopsNothing(t *testing.T) {
	r := newRig(t)
	run := r.up(r.start(r.options()))
	r.one(create("c", 100, ""))
	first := r.one(claim("c", "alice"))
	n := uint32(1)
	for name, forged := range r.forgeries() {
		r.publish(forged)
		n++
		if out := r.one(claim("c", name)); out.Status != wire.StatusClaimed || out.N != n {
			t.Fatalf("claim behind %s: %+v", name, out)
		}
		r.publish(forged)
		if err := run.stop(); err != nil {
			t.Fatal(err)
		}
		run = r.up(r.start(r.options()))
		if again := r.one(claim("c", "alice")); again.Code != first.Code || !again.Repeat {
			t.Fatalf("repeat after %s and a restart: %+v", name, again)
		}
	}
}

// TestASkippedMessageIsPassedOver: what stops a lane is ignored once it is in the skip list, and only that.
func TestASkippedMessageIsPassedOver(t *testing.T) {
	r := newRig(t)
	run := r.up(r.start(r.options()))
	r.one(create("c", 100, ""))
	first := r.one(claim("c", "alice"))
	if err := run.stop(); err != nil {
		t.Fatal(err)
	}
	events := eventlog.Events(r.js, 0).In(r.log.WithKey(testKey))
	bounds, err := events.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.plant(eventlog.Header{Owner: "a newer scrip"}, "2")
	if err := r.start(r.options()).wait(); !errors.Is(err, lane.ErrStopped) || !strings.Contains(err.Error(), "--skip-message 0=") {
		t.Fatalf("a newer format: %v", err)
	}
	store, err := settings.Open(t.Context(), r.js, settings.Options{Logger: streamtest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := events.CheckSkip(t.Context(), bounds.Last); err == nil || !strings.Contains(err.Error(), "can be read") {
		t.Errorf("skipping a sealed message that can be read: %v", err)
	}
	if err := store.Skip(t.Context(), events.Name(), bounds.Last+1, strings.Repeat("0", 64), "ann"); err != nil {
		t.Fatal(err)
	}
	if err := r.start(r.options()).wait(); !errors.Is(err, lane.ErrStopped) {
		t.Fatalf("with another message skipped: %v", err)
	}
	hash, listed, err := events.CheckSkip(t.Context(), bounds.Last+1)
	if err != nil || listed {
		t.Fatalf("%s %t %v", hash, listed, err)
	}
	for range 2 {
		if err := store.Skip(t.Context(), events.Name(), bounds.Last+1, hash, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	if _, listed, err := events.CheckSkip(t.Context(), bounds.Last+1); err != nil || !listed {
		t.Errorf("listed: %t %v", listed, err)
	}
	r.up(r.start(r.options()))
	if again := r.one(claim("c", "alice")); again.Code != first.Code || !again.Repeat {
		t.Fatalf("repeat: %+v", again)
	}
	if tail, err := events.Tail(t.Context()); err != nil || tail.Message == nil {
		t.Errorf("tail: %+v %v", tail, err)
	}
}
