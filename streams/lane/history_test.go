package lane_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// history is what callers sent and heard.
type history struct {
	r *rig

	mu      sync.Mutex
	answers []*nats.Msg
	codes   []string
	kinds   map[string]int // answers, by command and status
	unknown int            // commands whose caller did not wait for an answer
	again   int            // commands that were sent more than once and answered
}

// invent is a command, most often for one of the newest coupons.
func (h *history) invent(id string, rng *rand.Rand) (kind, line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.codes) == 0 || rng.IntN(3) == 0 {
		return "claim", fmt.Sprintf(`{"id":"%s","type":"claim","campaign":"c","customer_id":"customer%d"}`, id, rng.IntN(5000))
	}
	code := h.codes[max(0, len(h.codes)-1-rng.IntN(8))]
	if kind = []string{"redeem", "redeem", "redeem", "rollback", "rollback", "void"}[rng.IntN(6)]; kind == "void" {
		return kind, fmt.Sprintf(`{"id":"%s","type":"void","code":"%s","reason":"because"}`, id, code)
	}
	return kind, fmt.Sprintf(`{"id":"%s","type":"%s","code":"%s","order_id":"order%d"}`, id, kind, code, rng.IntN(3))
}

// work sends one command after the other until ctx ends, each until it is answered or patience ends.
func (h *history) work(ctx context.Context, name string, patience time.Duration, rng *rand.Rand) error {
	sub, err := h.r.nc.SubscribeSync("_INBOX." + name + ".*")
	if err != nil {
		return err
	}
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s-%d", name, n)
		kind, line := h.invent(id, rng)
		deadline := time.Now().Add(patience)
		for attempt := 1; ; attempt++ {
			msg := nats.NewMsg(topology.LaneCmd(0))
			msg.Data = []byte(line)
			msg.Header.Set(topology.HeaderReply, fmt.Sprintf("_INBOX.%s.%d-%d", name, n, attempt))
			if err := h.r.nc.PublishMsg(msg); err != nil {
				return err
			}
			if answered, err := h.listen(sub, id, kind, attempt); err != nil {
				return err
			} else if answered {
				break
			}
			if time.Now().After(deadline) {
				h.mu.Lock()
				h.unknown++
				h.mu.Unlock()
				break
			}
		}
		<-time.After(time.Duration(rng.IntN(20)) * time.Millisecond)
	}
	return nil
}

// listen records the answers that come, until that to a command does.
func (h *history) listen(sub *nats.Subscription, id, kind string, attempt int) (bool, error) {
	for {
		msg, err := sub.NextMsg(200 * time.Millisecond)
		if err != nil {
			return false, nil
		}
		out, err := wire.ParseOutcome(bytes.TrimSpace(msg.Data))
		if err != nil {
			return false, err
		}
		h.mu.Lock()
		h.answers = append(h.answers, msg)
		if out.Status == wire.StatusClaimed && !out.Repeat {
			h.codes = append(h.codes, out.Code)
		}
		if out.ID == id {
			h.kinds[kind+" "+out.Status+string(out.Refusal)]++
			if attempt > 1 {
				h.again++
			}
		}
		h.mu.Unlock()
		if out.ID == id {
			return true, nil
		}
	}
}

// judge decides the commands once more, in the order of the log, as a lane does that is alone and never fails. The log and the
// answers must be the same, to the byte. So there is one order of all commands, each between its call and its answer, in
// which one lane would have answered this; and the oracle finds no promise that it breaks.
func (h *history) judge() {
	r, t := h.r, h.r.t
	only := domain.NewLane(domain.LaneOptions{Lanes: 1, Key: testKey, Grace: settings.Default().ReminderGrace})
	right := map[string]string{} // answers, by inbox
	messages, events := r.events()
	for _, m := range messages {
		step := domain.NewStep(only)
		for seq := m.Commands[0]; seq <= m.Commands[1]; seq++ {
			raw, err := eventlog.Commands(r.js, 0).Get(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			c, err := protocol.CommandOf(&raw)
			if err != nil {
				t.Fatal(err)
			}
			right[c.Reply] = string(step.Add(domain.Message{Sequence: seq, Scope: c.Scope, Payload: c.Payload}, wire.At(c.Stamped), nil))
		}
		if step.Close(); !bytes.Equal(step.Events, m.Payload) {
			t.Fatalf("message %d by %s:\n got %s\nwant %s", m.Sequence, m.Owner, m.Payload, step.Events)
		}
	}
	for _, answer := range h.answers {
		if want := right[answer.Subject]; strings.TrimSpace(string(answer.Data)) != strings.TrimSpace(want) {
			t.Errorf("%s was answered %s, the log has: %s", answer.Subject, answer.Data, want)
		}
	}
	fold := oracle.New()
	for i := range events {
		fold.Apply(fmt.Sprint("event ", i), &events[i])
	}
	if len(fold.Violations) > 0 {
		t.Errorf("the log breaks promises: %s", strings.Join(fold.Violations, "\n"))
	}
	t.Logf("%d answers, %d commands sent again, %d unknown: %v", len(h.answers), h.again, h.unknown, h.kinds)
	for _, need := range []string{"claim claimed", "redeem redeemed", "redeem refusedvoided", "rollback rolled_back", "void voided"} {
		if h.kinds[need] == 0 {
			t.Errorf("nothing was answered %q", need)
		}
	}
}

// TestAnswersAreThoseOfOneOrder: many callers, while the network between owner and server fails, and while owners compete. Some
// callers wait for less long than a write without an acknowledgement takes.
func TestAnswersAreThoseOfOneOrder(t *testing.T) {
	for name, disturb := range map[string]func(h *history, first *running){
		"TheNetworkFails": (*history).failNetwork, "OwnersCompete": (*history).compete,
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{r: newRig(t), kinds: map[string]int{}}
			first := h.r.up(h.r.start(h.r.options()))
			h.r.one(create("c", 2000, `,"max_redemptions":2`))
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			ctx, cancel := context.WithCancel(t.Context())
			var callers errgroup.Group
			for i := range 8 {
				callers.Go(func() error {
					patience := []time.Duration{450 * time.Millisecond, time.Minute}[i%2]
					return h.work(ctx, fmt.Sprint("caller", i), patience, rand.New(rand.NewPCG(seed, uint64(i))))
				})
			}
			disturb(h, first)
			cancel()
			if err := callers.Wait(); err != nil {
				t.Fatal(err)
			}
			h.judge()
		})
	}
}

// failNetwork delays and loses writes and acknowledgements, for longer than the owner waits: a write is repeated, and may
// arrive long after it was given up.
func (h *history) failNetwork(first *running) {
	r, t := h.r, h.r.t
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	link := streamtest.NewLink(t, strings.TrimPrefix(r.srv.ClientURL(), "nats://"))
	nc := streamtest.Connect(t, "nats://"+link.Addr(), nats.IgnoreDiscoveredServers())
	o := r.options()
	var err error
	if o.JetStream, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	o.WriteTimeout = 300 * time.Millisecond
	r.up(r.start(o))
	enough := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.unknown > 0 && h.again > 0
	}
	for i := 0; i < 12 || i < 100 && !enough(); i++ {
		link.Cut(i%2 == 0, i%2 == 1)
		<-time.After([]time.Duration{100, 800}[i/6%2] * time.Millisecond)
		switch i / 2 % 3 {
		case 1: // what was cut arrives after what is sent over the next connection
			if err := nc.ForceReconnect(); err != nil {
				t.Fatal(err)
			}
		case 2: // it is lost
			link.Break()
		}
		link.Heal()
		<-time.After(100 * time.Millisecond)
	}
	if !enough() {
		t.Errorf("%d commands stayed unknown, %d were sent again; both must happen", h.unknown, h.again)
	}
}

// compete runs two or three owners of the lane at any time, each for a while only.
func (h *history) compete(first *running) {
	r, t := h.r, h.r.t
	competing := []*running{first, r.up(r.start(r.options()))}
	wrote := map[string]bool{}
	for i := 0; i < 40 || i < 1000 && len(wrote) < 4; i++ {
		competing = append(competing, r.start(r.options()))
		<-time.After(50 * time.Millisecond)
		if err := competing[0].stop(); err != nil {
			t.Error(err)
		}
		competing = competing[1:]
		tail, err := eventlog.Events(r.js, 0).Tail(t.Context())
		if err != nil || tail.Message == nil {
			t.Fatalf("%+v %v", tail, err)
		}
		wrote[tail.Message.Owner] = true
	}
	if len(wrote) < 4 {
		t.Errorf("only %d terms wrote to the lane", len(wrote))
	}
}
