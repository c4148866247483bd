package natsauth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// fire publishes one message of reminders for these customers, sealed as the lane's owner seals it.
func (r *rig) fire(t *testing.T, lane int, customers ...string) {
	t.Helper()
	stream := eventlog.Reminders(r.js, lane).In(r.owner.Log.WithKey([32]byte{1}))
	bounds, err := stream.Bounds(t.Context())
	streamtest.Must(t, err)
	next := bounds.Last + 1
	lines := append(streamtest.Due("summer", 1_000*next, customers...), '\n')
	h := eventlog.Header{Owner: "test", Source: eventlog.Source{Sequence: next, Line: 1, LastR: uint64(len(customers))}, SourceDigest: strings.Repeat("0", 32)}
	if _, err := r.js.PublishMsg(t.Context(), &nats.Msg{Subject: topology.Rmd(lane), Header: stream.Sealer().Encode(h, next, lines), Data: lines}); err != nil {
		t.Fatal(err)
	}
}

// gateway is the function of a sender. It refuses customer bad always, and late the first time.
type gateway struct {
	mu  sync.Mutex
	got map[string]int // deliveries by customer
	saw map[string]bool
}

func (g *gateway) push(_ context.Context, batch []push.Reminder) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var failed []int
	for i, r := range batch {
		if r.CustomerID == "bad" || r.CustomerID == "late" && !g.saw["late"] {
			failed = append(failed, i)
		} else {
			g.got[r.CustomerID]++
		}
		g.saw[r.CustomerID] = true
	}
	if failed != nil {
		return &push.Partial{Failed: failed, Err: errors.New("no such device")}
	}
	return nil
}

func (g *gateway) delivered(customer string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.got[customer]
}

// TestASenderWithAKey: a sender that has nothing but its key delivers each reminder, retries what failed, stores what could
// not be delivered as a dead letter, and counts. When its key is revoked it ends, and delivers nothing more.
func TestASenderWithAKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key := r.keys.add(access.Principal{Name: "mobile, Berlin", Role: access.Sender})
	js, err := jetstream.New(r.guest(t, key, nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1)).Conn)
	streamtest.Must(t, err)
	for lane := range lanes {
		r.fire(t, lane, fmt.Sprint("a", lane), fmt.Sprint("b", lane))
	}
	r.fire(t, 0, "late", "c")
	r.fire(t, 1, "bad", "d")
	g := &gateway{got: map[string]int{}, saw: map[string]bool{}}
	opts := push.Options{Name: "mobile", Since: push.FromStart(), Tries: 2, Pause: 10 * time.Millisecond, AckWait: 2500 * time.Millisecond, Logger: streamtest.Logger(t)}
	ended := make(chan error, 1)
	run := func(ctx context.Context) *push.Pusher {
		p, err := push.New(js, opts)
		streamtest.Must(t, err)
		p.Changed.Watch()
		go func() { ended <- p.Run(ctx, g.push) }()
		return p
	}
	ctx, stop := context.WithCancel(t.Context())
	p := run(ctx)
	all := []string{"a0", "b0", "a1", "b1", "late", "c", "d"}
	until(t, &p.Changed, "all are delivered", func() bool {
		return !slices.ContainsFunc(all, func(c string) bool { return g.delivered(c) == 0 })
	})
	letters := func() (all []push.DeadLetter) {
		for l, err := range push.Letters(t.Context(), r.js, "mobile") {
			streamtest.Must(t, err)
			all = append(all, l)
		}
		return all
	}
	until(t, &p.Changed, "the dead letter is stored", func() bool { return p.Stats().Dead == 1 })
	if l := letters()[0]; l.Lane != 1 || l.Tries != 2 || len(l.Reminders) != 1 || l.Reminders[0].CustomerID != "bad" || !strings.Contains(l.Error, "no such device") {
		t.Errorf("the dead letter is %+v", l)
	}
	stop() // which records the counts at once
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var counted [3]uint64
	streamtest.Eventually(t, "the counts are recorded and nothing waits", func() bool {
		positions, err := push.Positions(t.Context(), r.js)
		streamtest.Must(t, err)
		counted = [3]uint64{}
		var waiting uint64
		for _, at := range positions {
			counted[0], counted[1], counted[2], waiting = counted[0]+at.Delivered, counted[1]+at.Dead, counted[2]+at.Failed, waiting+at.Waiting
		}
		return counted == [3]uint64{7, 1, 3} && waiting == 0
	})
	for _, c := range all {
		if n := g.delivered(c); n != 1 {
			t.Errorf("%s: delivered %d times", c, n)
		}
	}

	for l, err := range push.Letters(t.Context(), js, "mobile") {
		if err != nil || l.Message() != letters()[0].Message() || l.ID != letters()[0].ID || len(l.Reminders) != 1 {
			t.Errorf("with the key: %+v, %v", l, err)
		}
	}
	if did, err := push.Retry(t.Context(), js, opts, g.push); err != nil || did != (push.Retried{Left: 1}) || len(letters()) != 1 || letters()[0].Tries != 3 {
		t.Errorf("retried in vain: %+v, %v, %+v", did, err, letters())
	}
	accept := func(context.Context, []push.Reminder) error { return nil }
	if did, err := push.Retry(t.Context(), js, opts, accept); err != nil || did != (push.Retried{Pushed: 1}) || len(letters()) != 0 {
		t.Errorf("retried: %+v, %v, %+v", did, err, letters())
	}

	run(t.Context()).Changed.Wait(t)
	r.keys.revoke(key)
	select {
	case err := <-ended:
		if err == nil {
			t.Error("Run ended without an error")
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("Run did not end")
	}
	r.fire(t, 0, "after")
	again, err := push.New(r.js, opts)
	streamtest.Must(t, err)
	again.Changed.Watch()
	streamtest.Background(t, func(ctx context.Context) error { return again.Run(ctx, g.push) })
	until(t, &again.Changed, "a sender of servers continues", func() bool { return g.delivered("after") == 1 })
	for _, c := range all {
		if n := g.delivered(c); n != 1 {
			t.Errorf("then %s: delivered %d times", c, n)
		}
	}
}

// TestASenderHasItsNameAlone: nothing of another audience or of a webhook is read, acknowledged or written, whatever a sender
// requests.
func TestASenderHasItsNameAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fire(t, 0, "ann")
	// Another audience has a message in flight.
	other, err := push.New(r.js, push.Options{Name: "other", Since: push.FromStart(), Logger: streamtest.Logger(t)})
	streamtest.Must(t, err)
	other.Changed.Watch()
	stop := streamtest.Background(t, func(ctx context.Context) error {
		return other.Run(ctx, func(context.Context, []push.Reminder) error { return nil })
	})
	until(t, &other.Changed, "the other audience has delivered", func() bool { return other.Stats().Pushed == 1 })
	stop()
	r.fire(t, 0, "ben")
	consumer, err := r.js.Consumer(t.Context(), topology.RmdStream(0), "other")
	streamtest.Must(t, err)
	flight, err := consumer.Next(jetstream.FetchMaxWait(time.Minute))
	streamtest.Must(t, err)
	g := r.guest(t, r.keys.add(access.Principal{Name: "mobile", Role: access.Sender}))
	before := r.shape(t)
	token := flight.Reply()
	for _, row := range []struct{ endpoint, body, want string }{
		{push.EndpointOpen, `{"name":"other"}`, "403"},
		{push.EndpointOpen, `{"name":"webhook-mobile"}`, "are of webhooks"},
		{push.EndpointOpen, `{"name":"mobile","since":"yesterday"}`, "since is"},
		{push.EndpointOpen, `{"name":"mobile.x"}`, "name: "},
		{push.EndpointOpen, `{"name":"*"}`, "name: "},
		{push.EndpointOpen, `{}`, "name: "},
		{push.EndpointNext, `{"name":"other","lane":0,"wait":"1ms"}`, "403"},
		{push.EndpointNext, `{"name":"other","class":"again","wait":"1ms"}`, "403"},
		{push.EndpointNext, `{"name":"mobile","class":"*","wait":"1ms"}`, "class: "},
		{push.EndpointNext, `{"name":"mobile","lane":-1,"wait":"1ms"}`, "lane or a class"},
		{push.EndpointNext, `{"name":"mobile","lane":0,"wait":"1h"}`, "wait is"},
		{push.EndpointAck, `{"name":"mobile","as":"ack","token":"` + token + `"}`, "not of a message for mobile"},
		{push.EndpointAck, `{"name":"other","as":"ack","token":"` + token + `"}`, "403"},
		{push.EndpointAck, `{"name":"mobile","as":"ack","token":"scrip.evt.0"}`, "not of a message"},
		{push.EndpointAck, `{"name":"mobile","as":"ack","token":"$JS.API.STREAM.DELETE.SCRIP_EVT_0.mobile.1.1.1"}`, "not of a message"},
		{push.EndpointAck, `{"name":"mobile","as":"ack","token":"$JS.ACK.SCRIP_CMD_0.mobile.1.1.1.1.1"}`, "not of a message"},
		{push.EndpointStore, `{"name":"other","do":"count","counts":{"lane":0,"delivered":7}}`, "403"},
		{push.EndpointStore, `{"name":"mobile","do":"count","counts":{"lane":7}}`, "lanes 0 to 1"},
		{push.EndpointStore, `{"name":"other","do":"letter","message":{"lane":0,"sequence":1}}`, "403"},
		{push.EndpointStore, `{"name":"other","do":"next"}`, "403"},
		{push.EndpointStore, `{"name":"other","do":"settle","message":{"lane":0,"sequence":1},"letter":{"id":1}}`, "403"},
		{push.EndpointStore, `{"name":"other","do":"remove","message":{"lane":0,"sequence":1},"keys":["x"]}`, "403"},
		{push.EndpointStore, `{"name":"mobile","do":"purge","message":{"lane":0,"sequence":1}}`, "does not know"},
		{push.EndpointStore, `{"name":"mobile","do":"read","message":{"lane":0,"sequence":1},"stream":"SCRIP_EVT_0"}`, "not understood"},
	} {
		m, err := g.Request("scrip."+row.endpoint, []byte(row.body), time.Minute)
		if err != nil {
			t.Fatalf("%s %s: %v", row.endpoint, row.body, err)
		}
		var out struct{ Status, Message string }
		if err := json.Unmarshal(m.Data, &out); err != nil {
			t.Errorf("%s %s: the answer is %s", row.endpoint, row.body, m.Data)
		}
		code := m.Header.Get("Nats-Service-Error-Code")
		if row.want == "403" && code != "403" || row.want != "403" && (out.Status != "refused" || !strings.Contains(out.Message, row.want)) {
			t.Errorf("%s %s: code %q, %s, want %s", row.endpoint, row.body, code, m.Data, row.want)
		}
	}
	same(t, before, r.shape(t))
	if info, err := consumer.Info(t.Context()); err != nil || info.NumAckPending != 1 {
		t.Errorf("the other audience's message is not in flight any more: %+v, %v", info, err)
	}
	// What a sender stores is of its name alone.
	for _, body := range []string{
		`{"name":"mobile","do":"add","message":{"lane":0,"sequence":1,"stored":5},"letter":{"name":"other","stream":"SCRIP_EVT_0","error":"a\nb","reminders":[{"key":"k","customer_id":"ann"}]}}`,
		`{"name":"mobile","do":"wait","message":{"lane":0,"sequence":1,"stored":5,"hop":1},"class":"again","entry":{"tries":1}}`,
	} {
		if m, err := g.Request("scrip."+push.EndpointOpen, []byte(`{"name":"mobile"}`), time.Minute); err != nil || m.Header.Get("Nats-Service-Error-Code") != "" {
			t.Fatalf("open: %s, %v", m.Data, err)
		}
		if m, err := g.Request("scrip."+push.EndpointStore, []byte(body), time.Minute); err != nil || m.Header.Get("Nats-Service-Error-Code") != "" || !strings.HasPrefix(string(m.Data), `{"data"`) {
			t.Errorf("%s: %s, %v", body, m.Data, err)
		}
	}
	for stream, subject := range map[string]string{push.DeadStream: "scrip.push.dead.mobile.0.1.5.0", push.WaitStream: "scrip.push.wait.mobile.again.0.1.5.1.0"} {
		s, err := r.js.Stream(t.Context(), stream)
		streamtest.Must(t, err)
		info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		if err != nil || len(info.State.Subjects) != 1 || info.State.Subjects[subject] != 1 {
			t.Errorf("%s has %v, %v, want %s alone", stream, info.State.Subjects, err, subject)
		}
	}
}
