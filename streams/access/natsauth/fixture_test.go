package natsauth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/service"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

// newRealRig is newRig with real lanes, and all that the service serves but what needs tables.
func newRealRig(t *testing.T) *rig {
	t.Helper()
	r := newRigWithout(t)
	key := [32]byte{1}
	log, err := topology.Ensure(t.Context(), r.js, topology.Spec{Lanes: lanes, KeyFingerprint: code.Fingerprint(key)})
	if err != nil {
		t.Fatal(err)
	}
	r.owner = &streamtest.Owner{Log: log}
	for n := range lanes {
		l := lane.New(lane.Options{JetStream: r.JetStream(t), Log: log.WithKey(key), Lane: n, Key: key, Logger: streamtest.Logger(t)})
		ready := make(chan struct{})
		close(ready)
		run(t, func(ctx context.Context) error {
			if err := l.Run(ctx); ctx.Err() == nil {
				return err
			}
			return nil
		}, ready)
	}
	store, err := settings.Open(t.Context(), r.js, settings.Options{Logger: streamtest.Logger(t), Audit: audit.Open(r.js, nil)})
	if err != nil {
		t.Fatal(err)
	}
	r.serve(t, log, service.Options{Logger: streamtest.Logger(t), Ops: &ops.Ops{
		Settings: store, Audit: audit.Open(r.js, nil), Webhooks: webhook.Open(r.js, webhook.NewKey(key, log.UUID), registry.Options{}), Letters: noLetters{},
		Status: func(context.Context) (any, error) { return "here", nil },
		Jobs:   &ops.Jobs{JetStream: r.js, Audit: audit.Open(r.js, nil), Clock: streamtest.ClockAt(time.Now().Add(time.Hour))}, // none is in progress
	}})
	nc := r.Conn(t)
	if _, err := nc.Subscribe(natsauth.Rollcall, func(m *nats.Msg) { _ = m.Respond([]byte(`{"server":"one"}`)) }); err != nil {
		t.Fatal(err)
	}
	for _, campaign := range []string{"summer", "winter", "spring", "autumn"} { // on both lanes
		r.do(t, nc, "scrip.campaign.create", `{"campaign":"`+campaign+`","codes":10000,"per_customer":5,"expires_at":"2998-01-01T00:00:00Z"}`)
	}
	return r
}

// noLetters are dead letters of which each exists, and has no line.
type noLetters struct{}

func (noLetters) List(context.Context, ops.ListLetters, bool) (any, error)        { return "here", nil }
func (noLetters) Show(context.Context, ops.ShowLetter, bool) (any, error)         { return "here", nil }
func (noLetters) Retry(context.Context, ops.Caller, ops.RetryLetter) (any, error) { return "here", nil }
func (noLetters) Discard(context.Context, ops.DiscardLetters) (d ops.LettersDone, err error) {
	return d, nil
}

// do makes a request that must have its effect, and returns the answer.
func (r *rig) do(t testing.TB, nc *nats.Conn, subject, body string) (v struct {
	Code, Status string
}) {
	t.Helper()
	m, err := nc.Request(subject, []byte(body), 20*time.Second)
	if err != nil || m.Header.Get("Nats-Service-Error-Code") != "" || json.Unmarshal(m.Data, &v) != nil || v.Status == "refused" {
		t.Fatalf("%s %s: %v, %s %v", subject, body, err, m.Data, m.Header)
	}
	return v
}

var (
	variable = regexp.MustCompile(`\$[A-Za-z]+`)
	values   = 0 // how many were made; the kinds are tried one after the other
)

// fixture puts new values in place of the variables of a body.
func (r *rig) fixture(t *testing.T, g guest, body string) string {
	t.Helper()
	nc := r.Conn(t)
	defer nc.Close()
	order := ""
	return variable.ReplaceAllStringFunc(body, func(name string) string {
		values++
		id := fmt.Sprint("x", values)
		claimed := func() string {
			return r.do(t, nc, "scrip.claim.summer", `{"customer_id":"`+id+`"}`).Code
		}
		campaign := func(more string) string {
			r.do(t, nc, "scrip.campaign.create", `{"campaign":"`+id+`",`+more+`}`)
			return id
		}
		switch name {
		case "$new":
			return id
		case "$number":
			return fmt.Sprint(10 + values)
		case "$CODE":
			return fmt.Sprintf("IMPORTED%08d", values)
		case "$code":
			return claimed()
		case "$holder", "$reminded":
			claimed()
			if name == "$reminded" {
				r.do(t, nc, "scrip.remind.summer", `{"customer_id":"`+id+`","kind":"expires","before":"24h"}`)
			}
			return id
		case "$redeemed":
			code := claimed()
			order = id
			r.do(t, nc, "scrip.redeem", `{"code":"`+code+`","order_id":"`+order+`"}`)
			return code
		case "$order":
			return order
		case "$campaign":
			return campaign(`"codes":5`)
		case "$paused":
			r.do(t, nc, "scrip.campaign.pause", `{"campaign":"`+campaign(`"codes":5`)+`"}`)
			return id
		case "$imported":
			return campaign(`"codes":0`)
		case "$key":
			k, _, err := r.keys.store.Create(t.Context(), access.New{Name: id, Role: access.Support}, access.Author{Principal: access.Local("test")})
			if err != nil {
				t.Fatal(err)
			}
			return k.ID
		case "$job":
			job, err := r.ops.Jobs.Start(t.Context(), access.Author{Principal: access.Local("test")}, "verify.start", ops.VerifyTables{})
			if err != nil {
				t.Fatal(err)
			}
			return job.ID
		case "$hook":
			e, _, err := r.ops.Webhooks.Create(t.Context(), access.Author{Principal: access.Local("test")}, webhook.Config{URL: "https://shop.example/", Types: []string{"coupon.*"}})
			if err != nil {
				t.Fatal(err)
			}
			return e.ID
		case "$token": // of a message that this user has got
			r.do(t, g.Conn, "scrip.sender.open", `{"name":"push","since":"start"}`)
			r.fire(t, 0, id)
			m, err := g.Request("scrip.sender.next", []byte(`{"name":"push","lane":0,"wait":5000000000}`), 20*time.Second)
			if err != nil || m.Header.Get("Scrip-Push-Token") == "" {
				t.Fatalf("%v %v", m, err)
			}
			return m.Header.Get("Scrip-Push-Token")
		}
		t.Fatalf("nothing makes %s", name)
		return ""
	})
}
