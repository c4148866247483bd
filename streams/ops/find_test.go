package ops

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// finder makes a log and searches it.
type finder struct {
	*Ops
	js jetstream.JetStream
}

func newFinder(t *testing.T, lanes int) finder {
	t.Helper()
	js := streamtest.Start(t).JetStream(t)
	log, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: lanes, KeyFingerprint: "k", CmdMaxBytes: 1 << 20})
	streamtest.Must(t, err)
	return finder{&Ops{JetStream: js, Log: log}, js}
}

// store stores event messages in a lane.
func (f finder) store(t *testing.T, lane int, all ...string) {
	t.Helper()
	for _, lines := range all {
		_, err := f.js.PublishAsync(topology.Evt(lane), fmt.Appendf(nil, lines, "2026-11-26T00:00:00Z"))
		streamtest.Must(t, err)
	}
	<-f.js.PublishAsyncComplete()
}

// find is what a search finds, and where it ended.
func (f finder) find(t *testing.T, who Caller, q FindCommand) (events string, found FoundCommand) {
	t.Helper()
	found, err := f.FindCommand(t.Context(), who, q)
	streamtest.Must(t, err)
	for _, e := range found.Events {
		events += fmt.Sprintf("%s %s %d at %d.%d; ", e.What, e.Campaign, e.N, e.Sequence, e.Line)
	}
	f.searches = turns{} // no rest
	return events, found
}

// The events of a command are found by its whole id, by those who may see their campaign, newest first.
func TestFindCommand(t *testing.T) {
	f := newFinder(t, 1)
	f.store(t, 0, `{"type":"coupon.claimed","id":"one","campaign":"spring","at":"%s","n":1,"customer_id":"c"}`,
		`{"type":"coupon.claimed","id":"one-more","campaign":"spring","at":"%[1]s","n":2,"customer_id":"c"}`+"\n"+
			`{"type":"coupon.claimed","id":"one","campaign":"autumn","at":"%[1]s","n":3,"customer_id":"one"}`)
	springs := ann
	springs.Campaigns = []string{"spring"}
	for _, c := range []struct {
		who      Caller
		id, want string
	}{
		{ann, "one", "coupon.claimed autumn 3 at 2.2; coupon.claimed spring 1 at 1.1; "},
		{springs, "one", "coupon.claimed spring 1 at 1.1; "},
		{ann, "on", ""},
	} {
		got, found := f.find(t, c.who, FindCommand{ID: c.id})
		streamtest.Equal(t, c.id, got, c.want)
		if len(found.Searched) != 1 || !found.Searched[0].All || found.Searched[0].Messages != 2 || found.Next != "" {
			t.Errorf("searched %+v, next %q", found.Searched, found.Next)
		}
	}
	for field, q := range map[string]FindCommand{"id": {}, "after": {ID: "one", After: "\x01\x01"}} {
		if _, err := f.FindCommand(t.Context(), ann, q); err == nil || RefusalOf(err).Code != wire.Invalid || RefusalOf(err).Field != field {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// A search that ends before all was read says how far it came, and goes on there: each message of each lane is read once, from
// the newest on, and of those that are stored meanwhile none.
func TestFindCommandGoesOn(t *testing.T) {
	was := findFor
	findFor = 0
	t.Cleanup(func() { findFor = was })
	f := newFinder(t, 3)
	const claimed = `{"type":"coupon.claimed","id":"%s","campaign":"spring","at":"%%s","n":%d,"customer_id":"c"}`
	const messages = 500
	for lane := range 2 { // the last one is empty
		all := []string{fmt.Sprintf(claimed, "old", lane)}
		for n := range messages - 1 {
			all = append(all, fmt.Sprintf(claimed, "other", n))
		}
		f.store(t, lane, all...)
	}
	read, events, requests := []uint64{0, 0, 0}, []string(nil), 0
	for q := (FindCommand{ID: "old"}); ; requests++ {
		some, found := f.find(t, ann, q)
		if q.After == "" {
			f.store(t, 0, fmt.Sprintf(claimed, "old", 7))
		}
		if some != "" {
			events = append(events, some)
		}
		for _, l := range found.Searched {
			read[l.Lane] += l.Messages
			if l.Messages > partMost || (l.Messages == 0) != l.Since.IsZero() {
				t.Fatalf("searched %+v", l)
			}
		}
		if q.After = found.Next; q.After == "" {
			break
		}
		if !slices.ContainsFunc(found.Searched, func(l SearchedLane) bool { return !l.All }) || requests > 3*messages {
			t.Fatalf("there is a next after %+v", found.Searched)
		}
	}
	if slices.Sort(events); !slices.Equal(events, []string{"coupon.claimed spring 0 at 1.1; ", "coupon.claimed spring 1 at 1.1; "}) {
		t.Errorf("%d requests found %q", requests, events)
	}
	if !slices.Equal(read, []uint64{messages, messages, 0}) || requests < 3 {
		t.Errorf("%v messages were read by %d requests", read, requests)
	}
	if _, found := f.find(t, ann, FindCommand{ID: "old", Campaign: "spring"}); len(found.Searched) != 1 || found.Searched[0].Lane != wire.LaneOf("spring", 3) {
		t.Errorf("with a campaign: %+v", found.Searched)
	}
}
