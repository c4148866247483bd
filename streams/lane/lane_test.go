package lane_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestAnOwnerDecidesAndIsQueried: also a step in which nothing happened is written; a repeat is answered after it.
func TestAnOwnerDecidesAndIsQueried(t *testing.T) {
	r := newRig(t)
	r.up(r.start(r.options()))
	r.one(create("summer", 1, ""))
	first := r.one(claim("summer", "alice"))
	if first.Status != wire.StatusClaimed || first.N != 1 || first.Code == "" {
		t.Fatalf("claim: %+v", first)
	}
	if again := r.one(claim("summer", "alice")); again.Code != first.Code || !again.Repeat {
		t.Fatalf("same claim again: %+v", again)
	}
	if messages, events := r.events(); len(messages) != 3 || len(messages[2].Payload) != 0 {
		t.Errorf("%d event messages, with the events %+v", len(messages), events)
	}
	r.one(redeem(first.Code, "o1"))
	var show struct{ Data domain.CampaignView }
	if r.query(map[string]any{"query": "campaign.show", "campaign": "summer"}, &show); show.Data.Claimed != 1 || show.Data.Redeemed != 1 {
		t.Errorf("show: %+v", show)
	}
	var coupon wire.Outcome
	if r.query(map[string]any{"query": "coupon.validate", "code": first.Code}, &coupon); coupon.Refusal != wire.AlreadyRedeemed {
		t.Errorf("validate: %+v", coupon)
	}
}

// TestAForeignMessageIsReportedOnce, however often the lane is loaded again over it.
func TestAForeignMessageIsReportedOnce(t *testing.T) {
	r := newRig(t)
	var log streamtest.Buffer
	o := r.options()
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	r.up(r.start(o))
	r.one(create("c", 100, ""))
	const rounds = 3
	for i := range rounds {
		if _, err := r.js.Publish(t.Context(), topology.Evt(0), []byte("I do not belong here")); err != nil {
			t.Fatal(err)
		}
		if out := r.one(claim("c", fmt.Sprint("customer-", i))); out.N != uint32(i+1) {
			t.Fatalf("claim after a foreign message: %+v", out)
		}
	}
	if n := strings.Count(log.String(), "foreign message in the log"); n != rounds {
		t.Errorf("%d foreign messages were reported %d times", rounds, n)
	}
}

// plant writes an event message as a holder of the code key does; format, where it is not empty, is another one.
func (r *rig) plant(h eventlog.Header, format string) {
	r.t.Helper()
	log := r.log.WithKey(testKey)
	bounds, err := eventlog.Events(r.js, 0).Bounds(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	header := eventlog.Events(nil, 0).In(log).Sealer().Encode(h, bounds.Last+1, nil)
	if format != "" {
		header.Set(topology.HeaderFormat, format)
		header.Set(topology.HeaderSeal, log.Seal.Message(topology.EvtStream(0), bounds.Last+1, header, nil))
	}
	if _, err := r.js.PublishMsg(r.t.Context(), &nats.Msg{Subject: topology.Evt(0), Header: header}); err != nil {
		r.t.Fatal(err)
	}
}

// TestALogThatContradictsItselfStopsTheLane; where the command stream lost its tail, a rebase lets it go on.
func TestALogThatContradictsItselfStopsTheLane(t *testing.T) {
	for _, c := range []struct {
		name   string
		header eventlog.Header
		format string
		want   string
		rebase bool
	}{
		{"a newer format", eventlog.Header{Owner: "someone"}, "2",
			"use a newer scrip; run a newer scrip. To lose the decisions of that message instead, start once with --skip-message 0=SEQ", false},
		{"a command stream that lost its tail",
			eventlog.Header{Commands: [2]uint64{3, 1000}, CommandTime: time.Now(), LaneTime: time.Now(), Owner: "someone"}, "", "--rebase 0", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			run := r.up(r.start(r.options()))
			r.one(create("c", 100, ""))
			first := r.one(claim("c", "alice"))
			if err := run.stop(); err != nil {
				t.Fatal(err)
			}
			r.plant(c.header, c.format)
			stopped := r.start(r.options())
			err := stopped.wait()
			if s := stopped.Status(); s.State != lane.StateStopped || s.Error == "" {
				t.Errorf("status %+v", s)
			}
			if err == nil || !strings.Contains(err.Error(), lane.ErrStopped.Error()) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if !c.rebase {
				return
			}
			o := r.options()
			o.Rebase = new(uint64)
			r.up(r.start(o))
			if again := r.one(claim("c", "alice")); again.Code != first.Code || !again.Repeat {
				t.Fatalf("repeat after the rebase: %+v", again)
			}
			if out := r.one(claim("c", "bob")); out.N != 2 {
				t.Fatalf("claim after the rebase: %+v", out)
			}
			if n := r.rebases(); n != 1 {
				t.Errorf("%d rebase steps, want 1", n)
			}
		})
	}
}

// rebases counts the rebase steps of the log.
func (r *rig) rebases() (n int) {
	messages, _ := r.events()
	for _, m := range messages {
		if m.Rebase != 0 {
			n++
		}
	}
	return n
}
