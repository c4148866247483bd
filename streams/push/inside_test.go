package push

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// Of two deliveries of a message, other lines may fail: the entry of the first does not replace those of the second.
func TestAnEntryIsTheSameOnlyWithAllLines(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: WaitStream, Subjects: []string{waitSubjects + ">"}, Retention: jetstream.WorkQueuePolicy,
	})
	streamtest.Must(t, err)
	s := &direct{js: js, opts: &Options{Name: "shop"}}
	for at, test := range []struct {
		stored, again []int // no lines = all
		same          bool
	}{
		{nil, nil, true},
		{nil, []int{2}, true},
		{[]int{1, 2}, []int{2}, true},
		{[]int{1}, []int{1, 2}, false},
		{[]int{1}, nil, false},
	} {
		id := messageID{Sequence: uint64(at + 1), Hop: 1, Line: 1}
		streamtest.Must(t, s.put(t.Context(), again, id, entry{Lines: test.stored}))
		if err := s.put(t.Context(), again, id, entry{Lines: test.again}); (err == nil) != test.same {
			t.Errorf("%v stored, then %v: %v", test.stored, test.again, err)
		}
		if err := stream.Purge(t.Context()); err != nil { // delivered and acknowledged
			t.Fatal(err)
		}
		if err := s.put(t.Context(), again, id, entry{Lines: test.again}); err != nil {
			t.Errorf("%v, when nothing is stored any more: %v", test.again, err)
		}
	}
}

// A token is a subject of JetStream; only those of the name's own consumers pass.
func TestOwnToken(t *testing.T) {
	for token, want := range map[string]bool{
		"$JS.ACK.SCRIP_RMD_0.shop.1.2.3.4.5":                     true,
		"$JS.ACK.SCRIP_PUSH_WAIT.shop-again.1.2.3.4.5":           true,
		"$JS.ACK.hub.abcd.SCRIP_RMD_0.shop.1.2.3.4.5":            true,
		"$JS.ACK._.abcd.SCRIP_RMD_0.shop.1.2.3.4.5.token":        true,
		"$JS.ACK.SCRIP_RMD_0.other.1.2.3.4.5":                    false,
		"$JS.ACK.SCRIP_PUSH_WAIT.other-again.1.2.3.4.5":          false,
		"$JS.ACK.SCRIP_PUSH_WAIT.shop.1.2.3.4.5":                 false,
		"$JS.ACK.SCRIP_PUSH_WAIT.shop-x-again.1.2.3.4.5":         false,
		"$JS.ACK.SCRIP_EVT_0.shop.1.2.3.4.5":                     false,
		"$JS.ACK.SCRIP_CMD_0.shop.1.2.3.4.5":                     false,
		"$JS.ACK.SCRIP_RMD_0.other.SCRIP_RMD_0.shop.1.2.3":       false,
		"$JS.ACK.SCRIP_RMD_0.other.SCRIP_RMD_0.shop.1.2":         false,
		"$JS.ACK.SCRIP_RMD_0.shop.*.2.3.4.5":                     false,
		"$JS.ACK.SCRIP_RMD_0.shop.1.2.3.4.>":                     false,
		"$JS.ACK.SCRIP_RMD_0.shop.1.2.3.4 5.6":                   false,
		"$JS.ACK.SCRIP_RMD_0.shop.1..3.4.5":                      false,
		"$JS.API.SCRIP_RMD_0.shop.1.2.3.4.5":                     false,
		"$JS.API.STREAM.DELETE.SCRIP_EVT_0.SCRIP_RMD_0.shop.1.1": false,
		"": false,
	} {
		if got := ownToken("shop", token); got != want {
			t.Errorf("%q: %t", token, got)
		}
	}
}
