package service

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// managed runs a service with keys, settings and the audit stream, and with what change adds.
func managed(t *testing.T, r *rig, change ...func(*Options)) (js jetstream.JetStream, keys *access.Registry) {
	t.Helper()
	js = r.server.JetStream(t)
	log := audit.Open(js, nil)
	store := access.Open(js, access.Options{Logger: streamtest.Logger(t), Audit: log})
	keys = store.Registry()
	streamtest.Background(t, keys.Run)
	<-keys.Ready()
	opts := Options{Keys: keys, Audit: log, Ops: &ops.Ops{Keys: store, Audit: log}}
	for _, c := range change {
		c(&opts)
	}
	r.serve(t, opts)
	return js, keys
}

// info is the header that NATS puts on the request of a user of another account.
func info(account, user string) []string {
	return []string{access.HeaderRequestInfo, fmt.Sprintf(`{"host":"127.0.0.1","id":7,"acc":%q,"user":%q,"name":"x","rtt":1}`, account, user)}
}

// data sends a request and expects data.
func (r *rig) data(t *testing.T, into any, subject, body string, header ...string) {
	t.Helper()
	reply := r.request(t, subject, body, header...)
	var answer struct{ Data json.RawMessage }
	if err := json.Unmarshal(reply.Data, &answer); err != nil || answer.Data == nil {
		t.Fatalf("%s %s: %v %s", subject, body, reply.Header, reply.Data)
	}
	if err := json.Unmarshal(answer.Data, into); err != nil {
		t.Fatalf("%s: %v in %s", subject, err, answer.Data)
	}
}

// denied sends a request and expects a 403.
func (r *rig) denied(t *testing.T, subject, body string, header ...string) {
	t.Helper()
	if reply := r.request(t, subject, body, header...); reply.Header.Get(micro.ErrorCodeHeader) != "403" || len(reply.Data) == 0 {
		t.Errorf("%s %s: %v %s", subject, body, reply.Header, reply.Data)
	}
}

func (r *rig) key(t *testing.T, keys *access.Registry, body string) ops.MadeKey {
	t.Helper()
	var made ops.MadeKey
	r.data(t, &made, "scrip.access.create", body, topology.HeaderBy, "ann@ops1")
	streamtest.Eventually(t, "the key is in force", func() bool { _, err := keys.Authenticate(made.Secret); return err == nil })
	return made
}

// TestNamedByNumber: campaign and n name a coupon for support, operators and the credentials of the servers. A producer's request
// with n is denied before the lane knows of it. A person who sees no codes gets none in outcomes.
func TestNamedByNumber(t *testing.T) {
	r := newRig(t)
	_, keys := managed(t, r)
	for lane := range lanes {
		r.lane(t, lane, func(q query) string {
			return fmt.Sprintf(`{"status":"redeemed","campaign":%q,"n":%d,"code":"%s"}`, q.Campaign, q.N, seenCode)
		})
	}
	support := info("OPS", r.key(t, keys, `{"name":"sue","role":"support"}`).ID)
	for account, key := range map[string]string{"SHOP": `{"name":"shop","role":"producer","codes":true}`, "COUNTER": `{"name":"limited","role":"producer","campaigns":["summer"]}`} {
		as := append(info(account, r.key(t, keys, key).ID), topology.HeaderBy, "ann")
		for _, subject := range []string{"scrip.redeem", "scrip.rollback", "scrip.coupon.validate"} {
			reply := r.request(t, subject, `{"campaign":"summer","n":7,"order_id":"o"}`, as...)
			if why := reply.Header.Get(micro.ErrorHeader); reply.Header.Get(micro.ErrorCodeHeader) != "403" || why != "n: "+wire.CodeOnly {
				t.Errorf("%s of %s: %v %s", subject, account, reply.Header, reply.Data)
			}
		}
	}
	if _, lines := r.owner.Seen(); lines != 0 {
		t.Errorf("%d lines of producers reached the lanes", lines)
	}
	for subject, body := range map[string]string{
		"scrip.void": `{"id":"v","campaign":"summer","n":7}`, "scrip.extend": `{"id":"e","campaign":"summer","n":7,"expires_at":"2099-01-01T00:00:00Z"}`,
		"scrip.rollback": `{"id":"r","campaign":"summer","n":7,"order_id":"o"}`,
	} {
		if out := r.outcome(t, subject, body, support...); out.Refused() {
			t.Errorf("%s: %+v", subject, out)
		}
	}
	if out := r.outcome(t, "scrip.redeem", `{"id":"s","campaign":"summer","n":7,"order_id":"o"}`); out.Status != wire.StatusRedeemed {
		t.Errorf("the servers' credentials: %+v", out)
	}
	for _, c := range r.owner.Commands() {
		if c.N != 7 || c.Code != "" || c.Campaign != "summer" {
			t.Errorf("the lane got %+v", c)
		}
	}
	if out := r.outcome(t, "scrip.coupon.validate", `{"campaign":"summer","n":7}`, support...); out.N != 7 || out.Code != "****-****-XW4T" {
		t.Errorf("a validation: %+v", out)
	}
	if out := r.outcome(t, "scrip.void", `{"code":"x","campaign":"summer","n":7}`, support...); out.Refusal != wire.Invalid || out.Message != "code: "+wire.OneName {
		t.Errorf("two names: %+v", out)
	}
}

// TestWhoDidIt: the lane gets the name of the authenticated user with people's commands, whatever the request claims.
func TestWhoDidIt(t *testing.T) {
	r := newRig(t)
	_, keys := managed(t, r)
	operator := r.key(t, keys, `{"name":"olga","role":"operator"}`)
	support := r.key(t, keys, `{"name":"sue","role":"support","campaigns":["summer"]}`)
	shop := r.key(t, keys, `{"name":"shop","role":"producer"}`)
	revoked := r.key(t, keys, `{"name":"rex","role":"operator"}`)
	r.data(t, &access.Key{}, "scrip.access.revoke", `{"key":"rex"}`)
	streamtest.Eventually(t, "the key is revoked", func() bool { _, err := keys.Principal(revoked.ID); return err == access.ErrRevoked })

	forged := []string{topology.HeaderBy, "forged"}
	done := func(out wire.Outcome) wire.Outcome {
		t.Helper()
		if out.Refused() {
			t.Fatalf("%+v", out)
		}
		return out
	}
	done(r.outcome(t, "scrip.campaign.create", `{"id":"1","campaign":"summer","codes":10}`, append(info("OPS", operator.ID), forged...)...))
	coupon := done(r.outcome(t, "scrip.claim.summer", `{"id":"2","customer_id":"c"}`, append(info("SHOP", shop.ID), forged...)...)).Code
	done(r.outcome(t, "scrip.void", `{"id":"3","campaign":"summer","code":"`+coupon+`"}`, append(info("OPS", support.ID), forged...)...))
	done(r.outcome(t, "scrip.campaign.pause", `{"id":"4","campaign":"summer"}`, topology.HeaderBy, "bob@ops2"))
	done(r.outcome(t, "scrip.campaign.resume", `{"id":"5","campaign":"summer"}`))
	done(r.outcome(t, "scrip.claim.summer", `{"id":"6","customer_id":"d"}`, info("OPS", operator.ID)...))

	r.denied(t, "scrip.campaign.pause", `{"campaign":"summer"}`, info("OPS", support.ID)...)
	r.denied(t, "scrip.void", `{"campaign":"winter","code":"`+coupon+`"}`, info("OPS", support.ID)...)
	r.denied(t, "scrip.void", `{"code":"`+coupon+`"}`, info("OPS", support.ID)...)
	r.denied(t, "scrip.access.create", `{"name":"eve","role":"operator"}`, info("OPS", support.ID)...)
	r.denied(t, "scrip.campaign.pause", `{"campaign":"summer"}`, info("OPS", revoked.ID)...)
	r.denied(t, "scrip.campaign.pause", `{"campaign":"summer"}`, info("OPS", "00000000")...)
	r.denied(t, "scrip.campaign.pause", `{"campaign":"summer"}`, access.HeaderRequestInfo, `{"acc":"OPS"}`)
	r.denied(t, "scrip.campaign.pause", `{"campaign":"summer"}`, info("OPS", "carol")...)      // a user of the NATS configuration
	r.denied(t, "scrip.campaign.pause", `{"campaign":"summer"}`, info("SHOP", operator.ID)...) // an account that it cannot log in to
	r.denied(t, "scrip.campaign.pause", `{"campaign":"summer"}`, info("SCRIP", operator.ID)...)
	r.denied(t, "scrip.guest.OPS.campaign.pause", `{"campaign":"summer"}`) // an answer of NATS
	r.denied(t, "scrip.guest.OPS.campaign.pause", `{"campaign":"summer"}`, topology.HeaderBy, "ann@ops1")
	if out := r.outcome(t, "scrip.campaign.pause", `{"campaign":"summer","by":"olga"}`, info("OPS", operator.ID)...); out.Refusal != wire.Invalid || !strings.Contains(out.Message, "by: ") {
		t.Errorf("by in the payload: %+v", out)
	}

	want := map[string]string{"1": "olga", "2": "", "3": "sue", "4": "local:bob@ops2", "5": "", "6": "olga"}
	if _, got := r.sent(t); !maps.Equal(got, want) {
		t.Errorf("by is %v, want %v", got, want)
	}
}

// TestRate: a request over a key's rate is a 429 with the time to wait, and has no effect; the key is rated as soon as it is in
// force, and clients of the servers' account are not.
func TestRate(t *testing.T) {
	r := newRig(t)
	const wait = 1500 * time.Millisecond
	full := atomic.Bool{}
	_, keys := managed(t, r, func(o *Options) {
		o.Rate = func(p access.Principal) time.Duration {
			if p.Rate == 7 && full.Load() {
				return wait
			}
			return 0
		}
	})
	slow, other := r.key(t, keys, `{"name":"slow","role":"producer","rate":7}`), r.key(t, keys, `{"name":"shop","role":"producer"}`)
	if slow.Rate != 7 {
		t.Fatalf("%+v", slow)
	}
	r.outcome(t, "scrip.claim.summer", `{"id":"a","customer_id":"ann"}`, info("COUNTER", slow.ID)...)
	full.Store(true)
	for _, subject := range []string{"scrip.claim.summer", "scrip.coupon.validate"} {
		reply := r.request(t, subject, `{"id":"b","customer_id":"ann"}`, info("COUNTER", slow.ID)...)
		if reply.Header.Get(micro.ErrorCodeHeader) != "429" || reply.Header.Get("Retry-After") != "2" || !strings.Contains(string(reply.Data), "7 requests a second") {
			t.Errorf("%s: %v %s", subject, reply.Header, reply.Data)
		}
	}
	r.outcome(t, "scrip.claim.summer", `{"id":"c","customer_id":"bob"}`, info("SHOP", other.ID)...)
	r.outcome(t, "scrip.claim.summer", `{"id":"d","customer_id":"cy"}`)
	r.denied(t, "scrip.claim.summer", `{"id":"e","customer_id":"dan"}`, info("SHOP", slow.ID)...) // its account is another one
	full.Store(false)
	r.outcome(t, "scrip.claim.summer", `{"id":"f","customer_id":"ann"}`, info("COUNTER", slow.ID)...)
	if on, _ := r.sent(t); fmt.Sprint(slices.Sorted(maps.Keys(on))) != "[a c d f]" {
		t.Errorf("commands were sent: %v", on)
	}
	for _, bad := range []string{"-1", "1000001"} {
		if out := r.outcome(t, "scrip.access.create", `{"name":"x","role":"producer","rate":`+bad+`}`, topology.HeaderBy, "ann@ops1"); !out.Refused() || !strings.Contains(out.Message, "rate: must be") {
			t.Errorf("a rate of %s: %+v", bad, out)
		}
	}
}
