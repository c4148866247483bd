package client_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestEveryCommand(t *testing.T) {
	r := newRig(t, client.Options{})
	ctx := within(t)
	code := r.generated(3, 4)
	patch := wire.Patch{Settings: wire.Settings{Codes: 20}}
	patch.Set("codes")
	for want, do := range map[string]func() (wire.Outcome, error){
		wire.StatusCreated: func() (wire.Outcome, error) { return r.CreateCampaign(ctx, "summer", wire.DefaultSettings(10)) },
		wire.StatusUpdated: func() (wire.Outcome, error) { return r.UpdateCampaign(ctx, "summer", patch) },
		wire.StatusPaused:  func() (wire.Outcome, error) { return r.Pause(ctx, "summer") },
		wire.StatusResumed: func() (wire.Outcome, error) { return r.Resume(ctx, "summer") },
		wire.StatusEnded:   func() (wire.Outcome, error) { return r.End(ctx, "summer") },
		wire.StatusClaimed: func() (wire.Outcome, error) {
			return r.Claim(ctx, "summer", "c1", client.Attributes([]byte(`{"channel":"app"}`)))
		},
		wire.StatusRedeemed:   func() (wire.Outcome, error) { return r.Redeem(ctx, code, "o1", client.Holder("c1")) },
		wire.StatusRolledBack: func() (wire.Outcome, error) { return r.Rollback(ctx, code, "o1") },
		wire.StatusVoided:     func() (wire.Outcome, error) { return r.Void(ctx, code, client.Reason("fraud")) },
		wire.StatusExtended: func() (wire.Outcome, error) {
			return r.Extend(ctx, "MY-OWN", time.Now().Add(time.Hour), client.Campaign("summer"))
		},
		wire.StatusReminderSet: func() (wire.Outcome, error) { return r.Remind(ctx, "summer", "c1", wire.KindOpens, time.Minute) },
		wire.StatusReminderCancelled: func() (wire.Outcome, error) {
			return r.Unremind(ctx, "summer", "c1", wire.KindOpens, time.Minute)
		},
		wire.StatusAllotted: func() (wire.Outcome, error) { return r.Allot(ctx, "summer", "flyer", 3) },
		wire.StatusImported: func() (wire.Outcome, error) { return r.ImportCodes(ctx, "summer", numbered(3), nil) },
	} {
		out, err := do()
		if err != nil || out.Status != want {
			t.Errorf("%s: answered %+v, %v", want, out, err)
		}
		if id, err := uuid.Parse(out.ID); err != nil || id.Version() != 7 {
			t.Errorf("%s: id %q is no UUIDv7", want, out.ID)
		}
	}
	sent := map[wire.CommandType]bool{}
	for _, cmd := range r.owner.Commands() {
		sent[cmd.Type] = true
	}
	for c := range wire.Commands() {
		if c.Spec().Scope != wire.ScopeScheduler && !sent[c] {
			t.Errorf("no method sends %s", c)
		}
	}
	if out, err := r.Claim(ctx, "summer", "c2", client.ID("mine")); err != nil || out.ID != "mine" || out.Repeat {
		t.Errorf("with an id of its own: %+v, %v", out, err)
	}
	if out, err := r.Claim(ctx, "summer", "c2", client.ID("mine")); err != nil || !out.Repeat {
		t.Errorf("the same id again: %+v, %v", out, err)
	}
	if out, err := r.Redeem(ctx, "MY-OWN", "o1"); err != nil || out.Refusal != wire.CodeNotFound {
		t.Errorf("an imported code without campaign: %+v, %v", out, err)
	}
}

// What is invalid is refused here, in the words of the lane, and what is raw JSON cannot smuggle commands in.
func TestInvalidCommandsAreRefusedHere(t *testing.T) {
	r := newRig(t, client.Options{})
	ctx := within(t)
	for want, cmd := range map[string]wire.Command{
		"id: has 65 bytes":      {Type: wire.Claim, ID: strings.Repeat("i", 65), Campaign: "summer", CustomerID: "c"},
		"after the JSON object": {Type: wire.Claim, Campaign: "summer", CustomerID: "c", Attributes: []byte("{}}\n{\"id\":\"x\"}")},
		"as a line of the log":  {Type: wire.Claim, Campaign: "summer", CustomerID: strings.Repeat("c", wire.MaxLine)},
		"nothing to update":     {Type: wire.UpdateCampaign, Campaign: "summer"},
		"codes: code 2":         {Type: wire.ImportCodes, Campaign: "summer", Codes: []string{"GOOD", "no good"}},
	} {
		out, err := r.Do(ctx, cmd)
		if err != nil || out.Refusal != wire.Invalid || !strings.Contains(out.Message, want) || out.ID == "" {
			t.Errorf("expected invalid with %q: %+v, %v", want, out, err)
		}
		async := make(chan wire.Outcome, 1)
		if err := r.DoAsync(ctx, cmd, func(out wire.Outcome, _ error) { async <- out }); err != nil {
			t.Error(err)
		} else if out := <-async; out.Refusal != wire.Invalid {
			t.Errorf("expected invalid with %q: %+v", want, out)
		}
	}
	if _, lines := r.owner.Seen(); lines != 0 {
		t.Errorf("%d invalid lines were sent", lines)
	}
	// What only the lane can judge reaches it and is refused there; so do the service's words.
	if out, err := r.Claim(ctx, "summer", ""); err != nil || out.Refusal != wire.Invalid || !strings.Contains(out.Message, "customer_id") {
		t.Errorf("without customer: %+v, %v", out, err)
	}
	if out, err := r.Redeem(ctx, "", "o"); err != nil || out.Refusal != wire.Invalid || !strings.Contains(out.Message, "code") {
		t.Errorf("without code: %+v, %v", out, err)
	}
	// Line breaks in raw JSON do not become several lines.
	out, err := r.Claim(ctx, "summer", "c", client.Attributes([]byte("{\n \"channel\":\n \"app\"\n}")))
	if err != nil || out.Status != wire.StatusClaimed {
		t.Errorf("attributes on several lines: %+v, %v", out, err)
	}
	settings := wire.DefaultSettings(1)
	settings.Benefit = []byte("{\n\"percent\": 10}")
	if out, err := r.CreateCampaign(ctx, "summer", settings); err != nil || out.Status != wire.StatusCreated {
		t.Errorf("a benefit on several lines: %+v, %v", out, err)
	}
	if messages, lines := r.owner.Seen(); messages != lines {
		t.Errorf("%d lines in %d messages", lines, messages)
	}
}

func TestWhenTheContextEndsTheResultIsUnknown(t *testing.T) {
	r := newRig(t, client.Options{})
	arrived := r.arrivals()
	for name, do := range map[string]func(context.Context) error{
		"lane": func(ctx context.Context) error {
			_, err := r.Claim(ctx, "summer", "c", client.ID("lane"))
			return err
		},
		"service": func(ctx context.Context) error {
			_, err := r.Redeem(ctx, r.generated(1, 1), "o", client.ID("service"))
			return err
		},
		"async": func(ctx context.Context) error { // only the deadline ends its wait
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			ended := make(chan error, 1)
			cmd := wire.Command{ID: "async", Type: wire.Claim, Campaign: "summer", CustomerID: "c"}
			err := r.DoAsync(ctx, cmd, func(_ wire.Outcome, err error) { ended <- err })
			return cmp.Or(err, <-ended)
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for <-arrived != name {
			}
			cancel()
		}()
		var unknown *client.UnknownError
		if err := do(ctx); !errors.As(err, &unknown) || unknown.ID != name || errors.Is(err, context.Canceled) == (name == "async") {
			t.Errorf("%s ended in %v", name, err)
		}
	}
	r.owner.SetFault(nil)
	r.owner.Release(t)
	if out, err := r.Claim(within(t), "summer", "c", client.ID("lane")); err != nil || !out.Repeat {
		t.Errorf("sent again: %+v, %v", out, err)
	}
}

// TestAClientBeforeItsService: calls wait for the service, at the start and after it went away, and are answered then.
func TestAClientBeforeItsService(t *testing.T) {
	server := streamtest.Start(t)
	c := client.New(server.Conn(t), client.Options{RetryAfter: quick})
	defer c.Close()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := c.Claim(short, "summer", "c")
	var notSent *client.NotSentError
	if !errors.As(err, &notSent) || !strings.Contains(err.Error(), "scrip serve") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a service: %v", err)
	}
	r := &rig{Client: c, server: server, codec: newCodec(), owner: streamtest.StartOwner(t, server.Conn(t), topology.Spec{Lanes: 3})}
	for name, call := range map[string]func() (wire.Outcome, error){
		"claim":  func() (wire.Outcome, error) { return c.Claim(within(t), "summer", "c") },
		"redeem": func() (wire.Outcome, error) { return c.Redeem(within(t), r.generated(1, 1), "o") },
	} {
		waiting := make(chan error, 1)
		go func() {
			out, err := call()
			if err == nil && out.Refused() {
				err = fmt.Errorf("answered %+v", out)
			}
			waiting <- err
		}()
		r.serve(t, server.Conn(t), r.owner.Log)
		if err := <-waiting; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r.stop()
	}
	uuid, lanes, err := c.Log(within(t))
	if err != nil || uuid != r.owner.Log.UUID || lanes != 3 {
		t.Errorf("the log is %s with %d lanes, %v", uuid, lanes, err)
	}
}

// TestAnotherLogIsSentNothing: lanes computed for one log would be wrong in another, which could also refuse what the first
// carried out. The client reports it.
func TestAnotherLogIsSentNothing(t *testing.T) {
	r := newRig(t, client.Options{RetryAfter: time.Hour})
	arrived := r.arrivals()
	ctx, cancel := context.WithCancel(within(t))
	waiting := make(chan error, 1)
	go func() {
		_, err := r.Claim(ctx, "summer", "c")
		waiting <- err
	}()
	<-arrived
	r.stop()
	other := r.owner.Log
	other.UUID, other.Lanes = "another", 7
	r.serve(t, r.server.Conn(t), other)
	if err := r.Conn().ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	streamtest.Eventually(t, "the client noticed", func() bool {
		_, _, err := r.Log(within(t))
		return err != nil && strings.Contains(err.Error(), "make a new client")
	})
	if _, err := r.Claim(ctx, "summer", "d"); err == nil || !strings.Contains(err.Error(), "make a new client") {
		t.Errorf("a later claim: %v", err)
	}
	cancel()
	var unknown *client.UnknownError
	if err := <-waiting; !errors.As(err, &unknown) {
		t.Errorf("the claim ended in %v", err)
	}
	if n, _ := r.owner.Seen(); n != 1 || r.Counters().Retries != 0 {
		t.Errorf("it was sent %d times", n)
	}
}

// TestCloseEndsCallsThatWaitForAService, also those whose context never ends.
func TestCloseEndsCallsThatWaitForAService(t *testing.T) {
	server := streamtest.Start(t)
	service := server.Conn(t)
	requests := make(chan *nats.Msg, 64)
	for _, subject := range []string{"$SRV.INFO.scrip", "scrip.coupon.show"} {
		if _, err := service.ChanSubscribe(subject, requests); err != nil {
			t.Fatal(err)
		}
	}
	if err := service.Flush(); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(*client.Client) error{
		"claim":  func(c *client.Client) error { _, err := c.Claim(context.Background(), "summer", "ann"); return err },
		"coupon": func(c *client.Client) error { _, err := c.Coupon(context.Background(), "x"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			c := client.New(server.Conn(t), client.Options{Timeout: time.Hour})
			ended := make(chan error, 2)
			for range 2 {
				go func() { ended <- call(c) }()
			}
			<-requests // one of them waits for the service, the other perhaps for the first
			c.Close()
			for range 2 {
				select {
				case err := <-ended:
					if !errors.Is(err, client.ErrClosed) {
						t.Errorf("ended with %v", err)
					}
				case <-time.After(3 * time.Minute):
					t.Fatal("Close has returned and a call still waits")
				}
			}
		})
	}
}

func TestClose(t *testing.T) {
	r := newRig(t, client.Options{})
	arrived := r.arrivals()
	waiting := make(chan error, 1)
	go func() {
		_, err := r.Claim(within(t), "summer", "c")
		waiting <- err
	}()
	<-arrived
	r.Close()
	var unknown *client.UnknownError
	if err := <-waiting; !errors.As(err, &unknown) || !errors.Is(err, client.ErrClosed) {
		t.Errorf("the call under way got %v", err)
	}
	r.Close() // twice does no harm
	if _, err := r.Claim(within(t), "summer", "c"); !errors.Is(err, client.ErrClosed) {
		t.Errorf("a call after Close got %v", err)
	}
	if _, err := r.Coupon(within(t), "x"); !errors.Is(err, client.ErrClosed) {
		t.Errorf("a query after Close got %v", err)
	}
	if r.Conn().IsClosed() {
		t.Error("Close closed a connection that is not its own")
	}
	c, err := client.Connect(r.server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if !c.Conn().IsClosed() {
		t.Error("Close left its own connection open")
	}
	if _, err := client.Connect("nats://127.0.0.1:1", nats.Timeout(time.Second)); err == nil || !strings.Contains(err.Error(), "scrip serve") {
		t.Errorf("connecting without a server: %v", err)
	}
}

// TestAProducerNeedsNoOperatorsRights: the SDK claims with the rights of a shop, which do not reach the subject that takes
// operators' commands as well.
func TestAProducerNeedsNoOperatorsRights(t *testing.T) {
	srv := streamtest.StartUsers(t, streamtest.User{Name: "server"}, streamtest.User{Name: "shop", Subscribe: []string{"_INBOX.>"},
		Publish: []string{"$SRV.INFO.scrip", "scrip.lane.*.shop", "scrip.redeem"}})
	connect := func(user string) *nats.Conn {
		nc, err := nats.Connect(srv.URL(user), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.Error(err) }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	r := &rig{owner: streamtest.StartOwner(t, connect("server"), topology.Spec{Lanes: 2}), codec: newCodec()}
	r.serve(t, connect("server"), r.owner.Log)
	r.Client = client.New(connect("shop"), client.Options{RetryAfter: quick})
	t.Cleanup(r.Close)
	for _, campaign := range []string{"summer", "winter", "spring"} {
		if out, err := r.Claim(within(t), campaign, "c1"); err != nil || out.Status != wire.StatusClaimed {
			t.Errorf("%s: %+v, %v", campaign, out, err)
		}
	}
	if out, err := r.Redeem(within(t), r.generated(3, 4), "o1"); err != nil || out.Status != wire.StatusRedeemed {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestQueries(t *testing.T) {
	r := newRig(t, client.Options{})
	ctx := within(t)
	r.lanes(t, func(lane int, q map[string]any) string {
		switch {
		case q["campaign"] == "absent":
			return `{"id":"","status":"refused","refusal":"campaign_not_found","message":"there is no campaign absent"}`
		case q["query"] == "coupon.validate":
			return fmt.Sprintf(`{"id":"%v","status":"valid","order_id":"%v"}`, q["id"], q["order_id"])
		case q["query"] == "campaign.show":
			return `{"data":{"campaign":"summer","codes":5}}`
		case q["query"] == "coupon.show":
			return `{"data":{"campaign":"summer","n":7,"code":"X","status":"claimed"}}`
		case q["query"] == "customer.show" && q["customer_id"] == "paged":
			return fmt.Sprintf(`{"data":[{"campaign":"after %v, most %v","n":1}]}`, q["after"], q["limit"])
		case q["query"] == "campaign.list" && q["after"] != nil:
			return [...]string{`{"data":[]}`, fmt.Sprintf(`{"data":[{"campaign":"after %v"}]}`, q["after"])}[lane]
		case q["query"] == "campaign.list":
			return fmt.Sprintf(`{"data":[{"campaign":"on-%d"}]}`, lane)
		}
		return fmt.Sprintf(`{"data":[{"campaign":"on-%d","n":1}]}`, lane)
	})
	if out, err := r.Validate(ctx, "X", "o", client.Campaign("summer")); err != nil || out.Status != wire.StatusValid || out.OrderID != "o" {
		t.Errorf("Validate: %+v, %v", out, err)
	}
	if view, err := r.Campaign(ctx, "summer"); err != nil || view.Codes != 5 {
		t.Errorf("Campaign: %+v, %v", view, err)
	}
	coupon, err := r.Coupon(ctx, "X", client.Campaign("summer"))
	if err != nil || coupon.N != 7 || coupon.Unavailable != "" {
		t.Errorf("Coupon: %+v, %v", coupon, err)
	}
	coupon, err = r.CouponHistory(ctx, "X", client.Page{}, client.Campaign("summer"))
	if err != nil || coupon.N != 7 || coupon.Unavailable == "" || coupon.History.History != nil {
		t.Errorf("CouponHistory: %+v, %v", coupon, err)
	}
	customer, err := r.CustomerHistory(ctx, "c1", client.Page{})
	if err != nil || len(customer.Items) != 2 || customer.Items[1].Campaign != "on-1" || customer.Unavailable == "" {
		t.Errorf("CustomerHistory: %+v, %v", customer, err)
	}
	ends := ops.Cursors{}.Of("customer.show", access.Principal{}, map[string]string{"query": "customer.show", "customer_id": "paged"})
	customer, err = r.Customer(ctx, "paged", client.Page{Limit: 3, After: ends.Seal(`{"c":"summer","n":7}`)})
	if err != nil || len(customer.Items) != 2 || customer.Items[0].Campaign != "after summer, most 4" || customer.Unavailable != "" {
		t.Errorf("Customer: %+v, %v", customer, err)
	}
	page, next, err := r.Campaigns(ctx, client.Page{Limit: 1})
	if err != nil || len(page) != 1 || page[0].Campaign != "on-0" || next == "" {
		t.Errorf("Campaigns: %+v, next %q, %v", page, next, err)
	}
	if page, next, err = r.Campaigns(ctx, client.Page{After: next, Limit: 1}); err != nil || len(page) != 1 || page[0].Campaign != "after on-0" || next != "" {
		t.Errorf("the last page: %+v, next %q, %v", page, next, err)
	}
	var refused *client.RefusedError
	if _, err := r.Campaign(ctx, "absent"); !errors.As(err, &refused) || refused.Outcome.Refusal != wire.CampaignNotFound {
		t.Errorf("an absent campaign: %v", err)
	}
	if _, err := r.Campaign(ctx, "no name"); !errors.As(err, &refused) || refused.Outcome.Refusal != wire.Invalid {
		t.Errorf("an invalid name: %v", err)
	}
}

// A query to a lane without an owner is retried until the context ends, and the error names what was missing.
func TestAQueryWaitsForAnOwner(t *testing.T) {
	r := newRig(t, client.Options{})
	// The error can name it only if a reply came before the context ended, which takes a slow machine longer.
	for limit := 300 * time.Millisecond; ; limit *= 2 {
		short, cancel := context.WithTimeout(t.Context(), limit)
		_, err := r.Campaign(short, "summer")
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "has no owner") {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) || limit > 30*time.Second {
			t.Fatalf("without owner, for %s: %v", limit, err)
		}
	}
	shown := make(chan error, 1)
	go func() {
		_, err := r.Campaign(within(t), "summer")
		shown <- err
	}()
	r.lanes(t, func(int, map[string]any) string { return `{"data":{"campaign":"summer"}}` })
	if err := <-shown; err != nil {
		t.Error(err)
	}
}
