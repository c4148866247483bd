package topology_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func condition(t *testing.T, log topology.Log, js jetstream.JetStream) topology.Condition {
	t.Helper()
	c, err := log.Condition(t.Context(), js)
	streamtest.Must(t, err)
	return c
}

// A setting that can remove messages endangers the log, any other one is a difference, and what was removed shows after the
// setting is put right.
func TestChangedSettingsAreClassed(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	log := ensure(t, js, spec)
	for range 20 {
		for lane := range 2 {
			_, err := js.Publish(t.Context(), topology.Evt(lane), []byte("{}"))
			streamtest.Must(t, err)
		}
	}
	if c := condition(t, log, js); len(c.Endangered)+len(c.Differ) > 0 || c.Lag != nil || c.Copies != 1 {
		t.Fatalf("as made: %+v", c)
	}
	for _, row := range []struct {
		stream, want string
		danger       bool
		change       func(*jetstream.StreamConfig)
	}{
		{topology.EvtStream(0), "max_age is", true, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }},
		{topology.EvtStream(0), "discard is", true, func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }},
		{topology.EvtStream(0), "max_bytes is", true, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }},
		{topology.EvtStream(0), "max_msgs_per_subject is", true, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 100 }},
		{topology.EvtStream(0), "subjects is", true, func(c *jetstream.StreamConfig) { c.Subjects = []string{"elsewhere"} }},
		{topology.EvtStream(0), "max_msg_size is", true, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 100 }},
		{topology.CmdStream(1), "max_age is", true, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }},
		{topology.StateStream, "max_age is", true, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }},
		{topology.SnapStream, "max_age is", false, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }},
		{topology.EvtStream(0), "allow_direct is", false, func(c *jetstream.StreamConfig) { c.AllowDirect = true }},
		{topology.EvtStream(0), "description is", false, func(c *jetstream.StreamConfig) { c.Description = "ours" }},
		{topology.CmdStream(0), "scrip_log is", false, func(c *jetstream.StreamConfig) { c.Metadata = nil }},
	} {
		stream, err := js.Stream(t.Context(), row.stream)
		streamtest.Must(t, err)
		before := stream.CachedInfo().Config
		alter(t, js, row.stream, row.change)
		c := condition(t, log, js)
		got, other := c.Differ, c.Endangered
		if row.danger {
			got, other = other, got
		}
		if len(other) > 0 || len(got) != 1 || !slices.ContainsFunc(got[row.stream], func(d string) bool { return strings.Contains(d, row.stream+": "+row.want) }) {
			t.Errorf("%s, %s: endangered %v, differ %v", row.stream, row.want, c.Endangered, c.Differ)
		}
		alter(t, js, row.stream, func(c *jetstream.StreamConfig) { *c = before })
	}

	alter(t, js, topology.EvtStream(1), func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 10, jetstream.DiscardOld })
	alter(t, js, topology.EvtStream(1), func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = -1, jetstream.DiscardNew })
	c := condition(t, log, js)
	streamtest.Equal(t, "after messages were removed", fmt.Sprint(c.Dangers(), c.Differences()),
		"[stream SCRIP_EVT_1 begins at message 11, those before are gone: restore it from a backup] []")
	streamtest.Must(t, js.DeleteStream(t.Context(), topology.EvtStream(1)))
	c = condition(t, log, js)
	streamtest.Equal(t, "after it was deleted", fmt.Sprint(c.Dangers()), "[stream SCRIP_EVT_1 does not exist: restore it from a backup]")
}

// A node that is away lacks what is published meanwhile, and nothing when it is back.
func TestANodeThatLags(t *testing.T) {
	cluster := streamtest.StartCluster(t)
	js := cluster.JetStream(t)
	log := ensure(t, js, topology.Spec{Lanes: 1, Replicas: 3, KeyFingerprint: "k", CmdMaxBytes: 1 << 20})
	leader := cluster.StreamLeader(t, topology.EvtStream(0))
	away := (leader + 1) % 3
	name := fmt.Sprint("n", away)
	streamtest.Eventually(t, "all copies are current", func() bool {
		c := condition(t, log, js)
		return len(c.Lag) == 3 && len(c.Behind()) == 0 && c.Copies == 3
	})
	cluster.Stop(t, away)
	for range 5 {
		streamtest.Eventually(t, "an event is stored", func() bool {
			_, err := js.Publish(t.Context(), topology.Evt(0), []byte("{}"))
			return err == nil
		})
	}
	if c := condition(t, log, js); c.Lag[name] < 5 || !slices.Equal(c.Behind(), []string{name}) {
		t.Errorf("with %s away: %v", name, c.Lag)
	}
	cluster.Start(t, away)
	streamtest.Eventually(t, "it is current", func() bool {
		c := condition(t, log, js)
		return len(c.Behind()) == 0
	})
}

func TestTheCheckOfAReplyCostsNoAllocation(t *testing.T) {
	refused := 0
	n := streamtest.Allocations(func() {
		if !topology.MayReply("_INBOX.5Vj2zWmJ8bY1pTqNcXk0aD.gH3kLmNp") {
			refused++
		}
	})
	if n != 0 || refused != 0 {
		t.Errorf("%v allocations, refused %d times", n, refused)
	}
}
