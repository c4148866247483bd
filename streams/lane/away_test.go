package lane_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Clocks are apart by more than is tolerated and commands keep coming. What was decided is written and answered although the
// next command must wait, and the alarm is a few lines, not one per command.
func TestWhatWasDecidedIsAnsweredWhileTheNextCommandWaits(t *testing.T) {
	r := newRig(t)
	o := r.options()
	var clock atomic.Int64 // as Unix time; does not advance
	clock.Store(time.Now().UnixNano())
	o.Now = func() time.Time { return time.Unix(0, clock.Load()) }
	logged := &streamtest.Buffer{}
	o.Logger = slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelError}))
	run := r.up(r.start(o))
	r.one(create("c", 1000, ""))
	clock.Add(-int64(time.Hour))
	ack, first := r.send(topology.LaneCmd(0), claim("c", "first"))
	stored := func(sequence uint64) time.Time {
		stream, err := r.js.Stream(t.Context(), topology.CmdStream(0))
		if err != nil {
			t.Fatal(err)
		}
		msg, err := stream.GetMsg(t.Context(), sequence)
		if err != nil {
			t.Fatal(err)
		}
		return msg.Time.Truncate(time.Microsecond)
	}
	var behind []*nats.Subscription
	for i := range 30 {
		streamtest.Eventually(t, "the next microsecond", func() bool { return time.Since(stored(ack.Sequence)) > time.Millisecond })
		_, sub := r.send(topology.LaneCmd(0), claim("c", fmt.Sprint("k", i)))
		behind = append(behind, sub)
	}
	streamtest.Eventually(t, "the lane waits", func() bool { return run.Status().State == lane.StateWaiting })
	// Now the first may be decided, and those behind it not yet.
	clock.Store(stored(ack.Sequence).Add(-settings.Default().ClockTolerance).UnixNano())
	if out := r.answers(first)[0]; out.Status != wire.StatusClaimed {
		t.Fatalf("%+v", out)
	}
	streamtest.Eventually(t, "the lane waits for the others", func() bool { return run.Status().State == lane.StateWaiting })
	if n, _, err := behind[0].Pending(); n != 0 || err != nil {
		t.Errorf("a command of the future was answered: %v", err)
	}
	clock.Store(time.Now().Add(time.Second).UnixNano())
	for _, sub := range behind {
		r.answers(sub)
	}
	streamtest.Eventually(t, "the lane does not wait any more", func() bool { return run.Status().State == lane.StateOwner })
	if n := strings.Count(logged.String(), "level=ERROR"); n < 1 || n > 10 {
		t.Errorf("%d alarms for %d commands:\n%s", n, len(behind)+1, logged)
	}
}

// A lane whose event stream takes no writes and does not answer reports it, with the error.
func TestALaneWithoutItsEventStreamSaysSo(t *testing.T) {
	r := newRig(t)
	run := r.up(r.start(r.options()))
	r.one(create("c", 10, ""))
	if err := r.js.DeleteStream(t.Context(), topology.EvtStream(0)); err != nil {
		t.Fatal(err)
	}
	r.send(topology.LaneCmd(0), claim("c", "alice"))
	streamtest.Eventually(t, "the status shows that the event log does not answer", func() bool {
		s := run.Status()
		return s.State == lane.StateUnknown && strings.Contains(s.Error, "does not answer")
	})
}

// An answer that is too large for a message takes none of those with it that leave with the same step.
func TestAnAnswerTooLargeTakesNoOthersWithIt(t *testing.T) {
	r := newRig(t)
	r.up(r.start(r.options()))
	benefit := `{"html":"` + strings.Repeat("<", 480) + `"}`
	for from := range 5 {
		var lines []string
		for i := range 200 {
			lines = append(lines, create(fmt.Sprintf("campaign-%d-%04d", from, i), 1000, `,"benefit":`+benefit))
		}
		r.request(lines...)
	}
	inbox := r.nc.NewRespInbox()
	lists, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	var claims []*nats.Subscription
	for i := range 100 {
		if err := r.nc.PublishRequest(topology.LaneQuery(0), inbox, []byte(`{"query":"campaign.list","limit":1000}`)); err != nil {
			t.Fatal(err)
		}
		_, sub := r.send(topology.LaneCmd(0), claim("campaign-0-0000", fmt.Sprint("k", i)))
		claims = append(claims, sub)
	}
	for _, sub := range claims {
		if out := r.answers(sub)[0]; out.Refused() {
			t.Errorf("%+v", out)
		}
	}
	msg, err := lists.NextMsg(3 * time.Minute)
	if err != nil {
		t.Fatalf("the list is not answered: %v", err)
	}
	if len(msg.Data) > 1<<20 || !bytes.Contains(msg.Data, []byte("campaign-0-0000")) || !bytes.HasSuffix(msg.Data, []byte(`,"more":true}`)) {
		t.Errorf("%d bytes: %.200s", len(msg.Data), msg.Data)
	}
}
