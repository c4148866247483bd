package lane_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestACouponsLife(t *testing.T) {
	r := newRig(t)
	r.up(r.start(r.options()))
	if out := r.one(create("summer", 2, `,"expires_at":"2999-01-01T00:00:00Z","benefit":{"percent":10}`)); out.Status != wire.StatusCreated {
		t.Fatalf("create: %+v", out)
	}
	a := r.one(claim("summer", "alice"))
	if a.Status != wire.StatusClaimed || a.N != 1 || a.Code == "" || a.ExpiresAt.String() != "2999-01-01T00:00:00Z" {
		t.Fatalf("claim: %+v", a)
	}
	if again := r.one(claim("summer", "alice")); again.Code != a.Code || !again.Repeat {
		t.Fatalf("same claim again: %+v", again)
	}
	if other := r.one(fmt.Sprintf(`{"id":"%s","type":"claim","campaign":"summer","customer_id":"alice"}`, newID())); other.Code != a.Code || !other.Repeat {
		t.Fatalf("same customer again: %+v", other)
	}
	if out := r.one(redeem(a.Code, "o1")); out.Status != wire.StatusRedeemed || out.RedeemedCount != 1 || string(out.Benefit) != `{"percent":10}` {
		t.Fatalf("redeem: %+v", out)
	}
	if out := r.one(redeem(a.Code, "o2")); out.Refusal != wire.AlreadyRedeemed {
		t.Fatalf("second redeem: %+v", out)
	}
	r.one(claim("summer", "bob"))
	if out := r.one(claim("summer", "carol")); out.Refusal != wire.SoldOut {
		t.Fatalf("third claim: %+v", out)
	}
	show := r.query(map[string]any{"query": "campaign.show", "campaign": "summer"})
	if data := show["data"].(map[string]any); data["claimed"] != 2.0 || data["redeemed"] != 1.0 {
		t.Fatalf("show: %v", show)
	}
	if v := r.query(map[string]any{"query": "coupon.validate", "code": a.Code}); v["refusal"] != string(wire.AlreadyRedeemed) {
		t.Fatalf("validate: %v", v)
	}
	_, events := r.events()
	var types []string
	for _, ev := range events {
		types = append(types, ev.Type.String())
	}
	want := "campaign.created coupon.claimed coupon.redeemed commands.refused coupon.claimed campaign.sold_out commands.refused"
	if got := strings.Join(types, " "); got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}
}

func TestEveryStepIsWrittenEvenWhenNothingHappened(t *testing.T) {
	r := newRig(t)
	r.up(r.start(r.options()))
	r.one(create("c", 10, ""))
	first := r.one(claim("c", "alice"))
	before, _ := r.events()
	if again := r.one(claim("c", "alice")); !again.Repeat || again.Code != first.Code {
		t.Fatalf("repeat: %+v", again)
	}
	after, _ := r.events()
	if len(after) != len(before)+1 || len(after[len(after)-1].Payload) != 0 {
		t.Fatalf("a repeat must be answered behind an event message without lines; %d messages, then %d", len(before), len(after))
	}
}

func TestConcurrentClaimersGetDistinctCodes(t *testing.T) {
	r := newRig(t)
	r.up(r.start(r.options()))
	const codes, customers, perMessage = 10_000, 20_000, 100
	r.one(create("rush", codes, ""))
	var mu sync.Mutex
	got := make(map[string]string)
	soldOut := 0
	var wg sync.WaitGroup
	for m := 0; m < customers/perMessage; m++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var lines []string
			for i := range perMessage {
				lines = append(lines, claim("rush", fmt.Sprintf("customer-%d", m*perMessage+i)))
			}
			_, sub := r.send(topology.LaneCmd(0), strings.Join(lines, "\n"))
			for i, out := range r.answers(sub) {
				mu.Lock()
				switch {
				case out.Refusal == wire.SoldOut:
					soldOut++
				case out.Status == wire.StatusClaimed:
					if other, taken := got[out.Code]; taken {
						t.Errorf("%s handed to %s and to %d", out.Code, other, i)
					}
					got[out.Code] = out.ID
				default:
					t.Errorf("unexpected outcome %+v", out)
				}
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	if len(got) != codes || soldOut != customers-codes {
		t.Fatalf("%d distinct codes and %d sold out, want %d and %d", len(got), soldOut, codes, customers-codes)
	}
	if held := r.holders(); len(held) != codes {
		t.Fatalf("the log knows %d codes", len(held))
	}
}

func TestAMessageHalfGoodHalfBadIsDoneInOrder(t *testing.T) {
	r := newRig(t)
	r.up(r.start(r.options()))
	r.one(create("c", 10, ""))
	outs := r.request(claim("c", "a"), `{"id":"x","type":"claim","campaign":"c"}`, "not json", claim("c", "b"), "")
	var got []string
	for _, o := range outs {
		got = append(got, o.ID+"/"+o.Status+"/"+string(o.Refusal))
	}
	want := "claim-a/claimed/ x/refused/invalid /refused/invalid claim-b/claimed/"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
	if !strings.Contains(outs[1].Message, "customer_id") {
		t.Errorf("the refusal does not name the field: %s", outs[1].Message)
	}
	_, events := r.events()
	parked := 0
	for _, ev := range events {
		if ev.Type == wire.CommandRejected {
			parked++
			if ev.Sequence != 2 || ev.Payload == "" || ev.Reason == "" {
				t.Errorf("dead letter %+v", ev)
			}
		}
	}
	if parked != 2 {
		t.Errorf("%d dead letters, want 2", parked)
	}
}

func TestSubjectsDecideWhoMaySendWhat(t *testing.T) {
	r := newRig(t)
	r.up(r.start(r.options()))
	r.one(create("c", 10, ""))
	for _, c := range []struct{ name, subject, line, want string }{
		{"an expire from a producer", topology.LaneCmdFor(0, "c"), `{"id":"1","type":"expire","through":"2020-01-01T00:00:00Z"}`, "expire"},
		{"a create from a producer", topology.LaneCmdFor(0, "c"), `{"id":"2","type":"create_campaign","codes":1}`, "create_campaign"},
		{"a claim from an operator", topology.LaneAdminFor(0, "c"), `{"id":"3","type":"claim","customer_id":"a"}`, "claim"},
		{"a campaign against the subject", topology.LaneCmdFor(0, "c"), `{"id":"4","type":"claim","campaign":"d","customer_id":"a"}`, "campaign"},
		{"a claim among the scheduler's", topology.LaneDue(0), `{"id":"5","type":"claim","campaign":"c","customer_id":"a"}`, "claim"},
		{"a void among producers'", topology.LaneShop(0), `{"id":"7","type":"void","campaign":"c","code":"X","reason":"y"}`, "void"},
		{"an import among producers'", topology.LaneShop(0), `{"id":"8","type":"import_codes","campaign":"c","codes":["XYZ"]}`, "import_codes"},
		{"an expire among producers'", topology.LaneShop(0), `{"id":"9","type":"expire","campaign":"c","through":"2020-01-01T00:00:00Z"}`, "expire"},
	} {
		_, sub := r.send(c.subject, c.line)
		out := r.answers(sub)[0]
		if out.Refusal != wire.Invalid || !strings.Contains(out.Message, c.want) {
			t.Errorf("%s: %+v", c.name, out)
		}
	}
	_, sub := r.send(topology.CmdSubject("c"), `{"id":"6","type":"claim","customer_id":"mapped"}`)
	if out := r.answers(sub)[0]; out.Status != wire.StatusClaimed {
		t.Errorf("a claim over the mapped subject: %+v", out)
	}
	r.one(create("d", 10, ""))
	_, sub = r.send(topology.LaneShop(0), claim("c", "one")+"\n"+claim("d", "two"))
	if out := r.answers(sub); out[0].Status != wire.StatusClaimed || out[0].Campaign != "c" || out[1].Status != wire.StatusClaimed || out[1].Campaign != "d" {
		t.Errorf("claims of several campaigns from a producer: %+v", out)
	}
}

func TestAReplyThatIsNoInboxIsIgnored(t *testing.T) {
	r := newRig(t)
	r.up(r.start(r.options()))
	r.one(create("c", 10, ""))
	before, _ := r.events()
	for _, reply := range []string{"scrip.evt.0", "_INBOX.>", "_INBOX", "_INBOX.", "_INBOXX.a", "$JS.API.STREAM.PURGE.SCRIP_EVT_0", "_INBOX.a b", "_INBOX..a"} {
		_, err := r.js.PublishMsg(t.Context(), &nats.Msg{Subject: topology.LaneCmd(0), Data: []byte(claim("c", "x-"+newID())), Header: nats.Header{topology.HeaderReply: {reply}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if out := r.one(claim("c", "last")); out.N != 9 {
		t.Fatalf("the claims before were not decided: %+v", out)
	}
	after, events := r.events()
	for _, m := range after[len(before):] {
		if m.Owner == "" {
			t.Errorf("message %d has no owner", m.Sequence)
		}
	}
	for _, ev := range events {
		if ev.Type == wire.NoEvent {
			t.Errorf("something that is no event was published on the event stream")
		}
	}
}

func TestARestartGoesOnWhereTheEventLogEnds(t *testing.T) {
	for _, how := range []string{"clean stop", "the whole server restarted"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			run := r.up(r.start(r.options()))
			r.one(create("c", 100, ""))
			first := r.one(claim("c", "alice"))
			if err := run.stop(); err != nil {
				t.Fatal(err)
			}
			if how != "clean stop" {
				r.srv.Restart(t)
				r.connect()
			}
			// Sent while the lane has no owner: stored, and decided later.
			_, waiting := r.send(topology.LaneCmd(0), claim("c", "bob"))
			r.up(r.start(r.options()))
			if out := r.answers(waiting)[0]; out.Status != wire.StatusClaimed || out.N != 2 {
				t.Fatalf("claim from before the start: %+v", out)
			}
			if again := r.one(claim("c", "alice")); again.Code != first.Code || !again.Repeat {
				t.Fatalf("the repeat after the restart: %+v", again)
			}
			r.holders()
		})
	}
}

func TestAZombieOwnerChangesNothingAndAnswersNothing(t *testing.T) {
	r := newRig(t)
	old := r.up(r.start(r.options()))
	r.one(create("c", 100, ""))
	r.one(claim("c", "alice"))
	// A second owner takes the lane while the first still believes it is its own. Both read every command.
	young := r.up(r.start(r.options()))
	for i := range 50 {
		_, sub := r.send(topology.LaneCmd(0), claim("c", fmt.Sprintf("customer-%d", i)))
		out := r.answers(sub)[0]
		if out.Status != wire.StatusClaimed {
			t.Fatalf("claim %d: %+v", i, out)
		}
		// The zombie, once the fence has refused it, may compete again and answer; but never twice differently.
		if msg, err := sub.NextMsg(time.Millisecond); err == nil {
			second, err := wire.ParseOutcome([]byte(strings.TrimSpace(string(msg.Data))))
			if err != nil || second.Code != out.Code {
				t.Fatalf("claim %d was answered %s, then %s", i, out.Code, second.Code)
			}
		}
	}
	if held := r.holders(); len(held) != 51 {
		t.Fatalf("%d codes handed out, want 51", len(held))
	}
	if old.Status().Owner == young.Status().Owner {
		t.Error("each taking of a lane makes a new nonce")
	}
}

func TestAForeignMessageOnTheEventStreamIsSkipped(t *testing.T) {
	r := newRig(t)
	run := r.up(r.start(r.options()))
	r.one(create("c", 100, ""))
	first := r.one(claim("c", "alice"))
	if _, err := r.js.Publish(t.Context(), topology.Evt(0), []byte("I do not belong here")); err != nil {
		t.Fatal(err)
	}
	// The owner is fenced out by it, loads again and goes on behind it.
	if out := r.one(claim("c", "bob")); out.N != 2 {
		t.Fatalf("claim behind a foreign message: %+v", out)
	}
	if again := r.one(claim("c", "alice")); again.Code != first.Code {
		t.Fatalf("repeat: %+v", again)
	}
	if err := run.stop(); err != nil {
		t.Fatal(err)
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
			t.Fatalf("claim behind a foreign message: %+v", out)
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
	header := eventlog.EventSealer(log, 0).Encode(h, bounds.Last+1, nil)
	if format != "" {
		header.Set(topology.HeaderFormat, format)
		header.Set(topology.HeaderSeal, log.Seal.Message(topology.EvtStream(0), bounds.Last+1, header, nil))
	}
	if _, err := r.js.PublishMsg(r.t.Context(), &nats.Msg{Subject: topology.Evt(0), Header: header}); err != nil {
		r.t.Fatal(err)
	}
}

func TestALogThatContradictsItselfStopsTheLane(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(r *rig)
		want   string
	}{
		{"a newer format", func(r *rig) {
			r.plant(eventlog.Header{Owner: "someone"}, "2")
		}, "newer"},
		{"a command stream that lost its tail", func(r *rig) {
			h := eventlog.Header{Commands: [2]uint64{3, 1000}, CommandTime: time.Now(), LaneTime: time.Now(), Owner: "someone"}
			r.plant(h, "")
		}, "--rebase 0"},
		{"a command stream that is another one", func(r *rig) {
			if _, err := r.js.Publish(r.t.Context(), topology.LaneCmd(0), []byte("{}")); err != nil {
				r.t.Fatal(err)
			}
			h := eventlog.Header{Commands: [2]uint64{3, 3}, CommandTime: time.Unix(1, 0), LaneTime: time.Now(), Owner: "someone"}
			r.plant(h, "")
		}, "--rebase 0"},
		{"a gap in the covered commands", func(r *rig) {
			h := eventlog.Header{Commands: [2]uint64{7, 8}, CommandTime: time.Now(), LaneTime: time.Now(), Owner: "someone"}
			r.plant(h, "")
		}, "covers commands from 7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			run := r.up(r.start(r.options()))
			r.one(create("c", 100, ""))
			r.one(claim("c", "alice"))
			if err := run.stop(); err != nil {
				t.Fatal(err)
			}
			c.damage(r)
			stopped := r.start(r.options())
			err := stopped.wait()
			if s := stopped.Status(); s.State != lane.StateStopped || s.Error == "" {
				t.Errorf("status %+v", s)
			}
			if err == nil || !strings.Contains(err.Error(), lane.ErrStopped.Error()) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
}

// wait waits for an owner that ends by itself.
func (r *running) wait() error {
	err := <-r.done
	r.done <- err
	return err
}

func TestARebaseLetsAStoppedLaneGoOn(t *testing.T) {
	r := newRig(t)
	run := r.up(r.start(r.options()))
	r.one(create("c", 100, ""))
	first := r.one(claim("c", "alice"))
	if err := run.stop(); err != nil {
		t.Fatal(err)
	}
	h := eventlog.Header{Commands: [2]uint64{3, 1000}, CommandTime: time.Now(), LaneTime: time.Now(), Owner: "someone"}
	r.plant(h, "")
	o := r.options()
	o.Rebase = new(uint64)
	r.up(r.start(o))
	if again := r.one(claim("c", "alice")); again.Code != first.Code || !again.Repeat {
		t.Fatalf("repeat after the rebase: %+v", again)
	}
	if out := r.one(claim("c", "bob")); out.N != 2 {
		t.Fatalf("claim after the rebase: %+v", out)
	}
	messages, _ := r.events()
	rebased := 0
	for _, m := range messages {
		if m.Rebase != 0 {
			rebased++
		}
	}
	if rebased != 1 {
		t.Errorf("%d rebase steps, want 1", rebased)
	}
}

// TestARebaseOfAHealthyLaneDoesNothing: a command that was acknowledged while the lane had no owner is not dropped by a --rebase
// that was left in the start line of a service.
func TestARebaseOfAHealthyLaneDoesNothing(t *testing.T) {
	r := newRig(t)
	run := r.up(r.start(r.options()))
	r.one(create("c", 100, ""))
	if err := run.stop(); err != nil {
		t.Fatal(err)
	}
	_, waiting := r.send(topology.LaneCmd(0), claim("c", "alice"))
	o := r.options()
	o.Rebase = new(uint64)
	r.up(r.start(o))
	if out := r.answers(waiting)[0]; out.Status != wire.StatusClaimed {
		t.Fatalf("the claim from before: %+v", out)
	}
	messages, _ := r.events()
	for _, m := range messages {
		if m.Rebase != 0 {
			t.Errorf("message %d is a rebase", m.Sequence)
		}
	}
}

func TestACommandFromTheFutureMakesTheLaneWait(t *testing.T) {
	r := newRig(t)
	var mu sync.Mutex
	offset := time.Duration(0)
	o := r.options()
	o.Now = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Add(offset)
	}
	run := r.up(r.start(o))
	r.one(create("c", 10, ""))
	mu.Lock()
	offset = -time.Hour // our clock is behind the one that stamps commands
	mu.Unlock()
	_, sub := r.send(topology.LaneCmd(0), claim("c", "alice"))
	streamtest.Eventually(t, "the lane waits", func() bool { return run.Status().State == lane.StateWaiting })
	mu.Lock()
	offset = 0
	mu.Unlock()
	if out := r.answers(sub)[0]; out.Status != wire.StatusClaimed {
		t.Fatalf("claim after the clocks agree: %+v", out)
	}
}
