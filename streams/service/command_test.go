package service

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestEveryCommandHasItsEndpoint(t *testing.T) {
	r := newRig(t)
	r.serve(t, Options{})
	code := r.generated(5, 7)
	for _, test := range []struct{ subject, body, status string }{
		{"scrip.campaign.create", `{"campaign":"summer","codes":10}`, "created"},
		{"scrip.campaign.update", `{"campaign":"summer","codes":20}`, "updated"},
		{"scrip.campaign.pause", `{"campaign":"summer"}`, "paused"},
		{"scrip.campaign.resume", `{"campaign":"summer"}`, "resumed"},
		{"scrip.campaign.end", `{"campaign":"summer"}`, "ended"},
		{"scrip.codes.import", `{"campaign":"summer","codes":["ABC","DEF"],"weak_codes":true}`, "imported"},
		{"scrip.claim.summer", `{"customer_id":"c1"}`, "claimed"},
		{"scrip.claim.summer", `{"customer_id":"c1","type":"claim","campaign":"summer","attributes":{"a":1}}`, "claimed"},
		{"scrip.remind.summer", `{"customer_id":"c1","kind":"opens","before":"1m"}`, "reminder_set"},
		{"scrip.unremind.summer", `{"customer_id":"c1","kind":"opens","before":"1m"}`, "reminder_cancelled"},
		{"scrip.redeem", `{"code":"` + code + `","order_id":"o1"}`, "redeemed"},
		{"scrip.rollback", `{"code":"` + code + `","order_id":"o1"}`, "rolled_back"},
		{"scrip.void", `{"code":"` + code + `","reason":"fraud"}`, "voided"},
		{"scrip.extend", `{"code":"` + code + `","expires_at":"2030-01-01T00:00:00Z"}`, "extended"},
	} {
		out := r.outcome(t, test.subject, test.body)
		if out.Status != test.status {
			t.Errorf("%s %s: answered %+v, expected %s", test.subject, test.body, out, test.status)
		}
		if id, err := uuid.Parse(out.ID); err != nil || id.Version() != 7 {
			t.Errorf("%s: id %q is no UUIDv7", test.subject, out.ID)
		}
	}
	if out := r.outcome(t, "scrip.claim.summer", `{"customer_id":"c1","id":"mine"}`); out.ID != "mine" {
		t.Errorf("an id of one's own came back as %q", out.ID)
	}
	if out := r.outcome(t, "scrip.claim.summer", `{"customer_id":"c1","id":"mine"}`); !out.Repeat {
		t.Errorf("the same id again was answered %+v", out)
	}
}

func TestBadInputAtEveryCommandEndpoint(t *testing.T) {
	r := newRig(t)
	s, _ := r.serve(t, Options{})
	for i := range endpoints {
		e := &endpoints[i]
		if e.command == wire.NoCommand {
			continue
		}
		subject := strings.Replace(e.subject, "*", "summer", 1)
		long := `{"id":"i","campaign":"` + strings.Repeat("x", wire.MaxLine) + `"}`
		for _, bad := range []struct{ body, want string }{
			{``, "JSON object"},
			{`hello`, "JSON object"},
			{`{"id":"i","colour":"red"}`, "colour: unknown field"},
			{`{"id":"i","id":"i"}`, "id: given twice"},
			{`{"id":"i"}`, "missing"},
			{`{"id":"i","type":"expire"}`, "type: expire does not belong here"},
			{`{"id":"i","campaign":"a.b"}`, "campaign: must be"},
			{`{"id":"i","through":"2030-01-01T00:00:00Z","campaign":"summer"}`, "through: does not belong"},
			{long, "at most 16384"},
		} {
			out := r.outcome(t, subject, bad.body)
			if out.Refusal != wire.Invalid || !strings.Contains(out.Message, bad.want) {
				t.Errorf("%s %.60s: answered %+v, expected invalid with %q", subject, bad.body, out, bad.want)
			}
		}
	}
	for _, bad := range []struct{ subject, body, want string }{
		{"scrip.claim.summer", `{"customer_id":"c","campaign":"winter"}`, "disagrees with the subject"},
		{"scrip.claim.sum$mer", `{"customer_id":"c"}`, "campaign: the subject's last token"},
		{"scrip.claim." + strings.Repeat("s", 65), `{"customer_id":"c"}`, "campaign: the subject's last token"},
		{"scrip.codes.import", `{"campaign":"summer","codes":["no good"]}`, "codes: code 1"},
	} {
		out := r.outcome(t, bad.subject, bad.body)
		if out.Refusal != wire.Invalid || !strings.Contains(out.Message, bad.want) {
			t.Errorf("%s %.60s: answered %+v, expected invalid with %q", bad.subject, bad.body, out, bad.want)
		}
	}
	// Just short enough as a request, too long with what the line adds.
	pad := wire.MaxLine - len(`{"campaign":"summer","codes":[]}`)
	codes := strings.TrimSuffix(strings.Repeat(`"ABCDEFGH",`, pad/11), ",")
	if out := r.outcome(t, "scrip.codes.import", `{"campaign":"summer","codes":[`+codes+`]}`); out.Refusal != wire.Invalid ||
		!strings.Contains(out.Message, "split it") {
		t.Errorf("a line of over 16 KiB was answered %+v", out)
	}
	for _, header := range []string{"soon", "-1s", "0s", "2h"} {
		if out := r.outcome(t, "scrip.claim.summer", `{"customer_id":"c"}`, HeaderTimeout, header); out.Refusal != wire.Invalid ||
			!strings.Contains(out.Message, HeaderTimeout) {
			t.Errorf("timeout %s was answered %+v", header, out)
		}
	}
	// A request is closed after its answer is sent.
	streamtest.Eventually(t, "no request is open", func() bool { return s.open.Load() == 0 })
	if _, lines := r.owner.Seen(); lines != 0 {
		t.Errorf("%d invalid lines reached the lanes", lines)
	}
}

func TestACodeFindsItsLane(t *testing.T) {
	r := newRig(t)
	r.serve(t, Options{})
	want := map[string]int{}
	for number := range uint32(8) {
		id := fmt.Sprint("by-number-", number)
		want[id] = int(number) % lanes
		code := strings.ToLower(r.generated(number, 1))
		if out := r.outcome(t, "scrip.redeem", `{"id":"`+id+`","order_id":"o","code":"summer `+code+`"}`); out.Status != wire.StatusRedeemed {
			t.Fatalf("answered %+v", out)
		}
	}
	if on, _ := r.sent(t); !maps.Equal(on, want) {
		t.Errorf("lanes %v, expected %v", on, want)
	}
	// An imported code goes by its campaign's name; the fake lane would call a wrong lane invalid.
	for _, campaign := range []string{"summer", "winter", "spring", "autumn"} {
		if out := r.outcome(t, "scrip.redeem", `{"order_id":"o","code":"MY-OWN","campaign":"`+campaign+`"}`); out.Status != wire.StatusRedeemed {
			t.Errorf("an imported code of %s was answered %+v", campaign, out)
		}
	}
	_, before := r.owner.Seen()
	out := r.outcome(t, "scrip.redeem", `{"id":"lost","order_id":"o","code":"MY-OWN"}`)
	if out.Refusal != wire.CodeNotFound || out.ID != "lost" {
		t.Errorf("answered %+v, expected code_not_found", out)
	}
	has(t, out.Message, "imported code needs its campaign")
	if _, after := r.owner.Seen(); after != before+1 {
		t.Error("a code that leads nowhere was sent to no lane, which counts it")
	}
}

func TestAnUnknownResultIsAnErrorWithTheID(t *testing.T) {
	r := newRig(t)
	r.serve(t, Options{})
	r.outcome(t, "scrip.claim.winter", `{"customer_id":"c"}`) // commands are sent from now on, however short their time
	r.owner.SetFault(func(int, []wire.Command) int { return streamtest.HoldBack })
	description, body := r.fails(t, "scrip.claim.summer", `{"customer_id":"c","id":"hold"}`, HeaderTimeout, "150ms")
	has(t, description, "not known", "hold")
	if body["id"] != "hold" || body["message"] == "" || len(body) != 2 {
		t.Errorf("the error's body is %v", body)
	}
	r.owner.SetFault(nil)
	r.owner.Release(t)
	if out := r.outcome(t, "scrip.claim.summer", `{"customer_id":"c","id":"hold"}`); !out.Repeat || out.N != 1 {
		t.Errorf("sent again, the answer is %+v", out)
	}
}

// Two servers, many requesters: everyone gets their own answer, requests share messages, both servers work.
func TestManyRequestersAndTwoServers(t *testing.T) {
	r := newRig(t)
	patient := Options{Timeout: MaxTimeout, Batch: command.Options{RetryAfter: time.Hour}} // nothing is sent twice
	a, _ := r.serve(t, patient)
	b, _ := r.serve(t, patient)
	const callers = 2000
	var all sync.WaitGroup
	place := make(chan struct{}, 500)
	for i := range callers {
		place <- struct{}{}
		all.Go(func() {
			defer func() { <-place }()
			customer := fmt.Sprint("customer-", i)
			if out := r.outcome(t, fmt.Sprintf("scrip.claim.c%d", i%3), `{"customer_id":"`+customer+`"}`); out.CustomerID != customer {
				t.Errorf("%s got %+v", customer, out)
			}
		})
	}
	all.Wait()
	messages, lines := r.owner.Seen()
	if lines != callers || messages > callers/2 {
		t.Errorf("%d requests became %d lines in %d messages", callers, lines, messages)
	}
	if a.lanes.Counters().Lines == 0 || b.lanes.Counters().Lines == 0 {
		t.Errorf("the servers took %d and %d requests", a.lanes.Counters().Lines, b.lanes.Counters().Lines)
	}
	t.Logf("%d requests in %d messages", lines, messages)
}

// A stop waits a moment for the outcomes of the requests that were accepted, and takes no more. Without an outcome they are
// answered 503.
func TestAStopAnswersWhatItTook(t *testing.T) {
	for name, code := range map[string]string{"InTime": "", "TooLate": "503"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s, stop := r.serve(t, Options{})
			held := make(chan struct{}, 1<<10)
			r.owner.SetFault(func(int, []wire.Command) int { held <- struct{}{}; return streamtest.HoldBack })
			inbox := r.conn.NewInbox()
			replies, err := r.conn.SubscribeSync(inbox)
			streamtest.Must(t, err)
			streamtest.Must(t, r.conn.PublishRequest("scrip.claim.summer", inbox, []byte(`{"customer_id":"c"}`)))
			<-held
			stopped := make(chan struct{})
			go func() { stop(); close(stopped) }()
			s.signals.stopped.Wait(t)
			if _, err := r.conn.Request("scrip.coupon.show", nil, time.Minute); err != nats.ErrNoResponders {
				t.Errorf("a request during the stop: %v", err)
			}
			if code == "" {
				r.owner.Release(t)
			}
			<-stopped
			reply, err := replies.NextMsg(time.Minute)
			if err != nil || reply.Header.Get(micro.ErrorCodeHeader) != code || s.open.Load() != 0 {
				t.Errorf("the request got %v, %v; %d are open", reply, err, s.open.Load())
			}
		})
	}
}
