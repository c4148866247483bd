package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// key makes a key and returns its URL for NATS and its id.
func (r *rig) key(t *testing.T, name, role, rest string) (natsURL, id string) {
	t.Helper()
	var made struct {
		Data struct{ ID, Secret string }
	}
	body := fmt.Sprintf(`{"name":%q,"role":%q%s}`, name, role, more(rest))
	if err := json.Unmarshal(r.request(t, "scrip.access.create", body), &made); err != nil || made.Data.Secret == "" {
		t.Fatalf("%s: %+v, %v", body, made, err)
	}
	u, err := url.Parse(r.desc.NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(made.Data.Secret)
	return u.String(), made.Data.ID
}

// logIn connects with a key, which may be in force a moment later.
func logIn(t *testing.T, natsURL string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	var nc *nats.Conn
	eventually(t, "the key opens NATS", func() bool {
		var err error
		nc, err = nats.Connect(natsURL, natsx.Keyed(natsURL, append(opts, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)...)
		return err == nil
	})
	t.Cleanup(nc.Close)
	return nc
}

// TestKeysOpenNATS: with a key a role does its work, on the command line and on NATS; a revoked key ends. What each role may do, and
// that neither reply subjects nor headers are a way around its limits, is in streams/access/natsauth and cmd/scrip.
func TestKeysOpenNATS(t *testing.T) {
	t.Parallel()
	r := serve(t, projtest.Dir(t), []string{"--lanes", "1", "--roles", withoutTables}, nil)
	r.create(t, "summer", `"codes":1000000`)
	r.create(t, "winter", `"codes":10`)
	code := r.claim(t, "summer", "ann")
	shopURL, shopID := r.key(t, "shop", "producer", "")
	limitedURL, _ := r.key(t, "limited", "producer", `"campaigns":["summer"]`)
	supportURL, _ := r.key(t, "ann of support", "support", "")
	analystURL, _ := r.key(t, "eve", "analyst", `"codes":true`)
	shop, limited, analyst := logIn(t, shopURL), logIn(t, limitedURL), logIn(t, analystURL)

	if got := (shell{}).run(t, "claim", "summer", "--customer", "bea", "--nats", shopURL); got.code != 0 {
		t.Errorf("a producer's claim: exit code %d\n%s%s", got.code, got.out, got.err)
	}
	if got := (shell{}).run(t, "void", code, "--reason", "lost", "--nats", supportURL); got.code != 0 {
		t.Errorf("support's void: exit code %d\n%s%s", got.code, got.out, got.err)
	}
	// The code of a campaign is no secret to the lane, so a limited key must name the campaign, and it is checked.
	for body, want := range map[string]string{
		`{"code":"` + code + `","order_id":"o"}`:                     "403",
		`{"code":"` + code + `","order_id":"o","campaign":"winter"}`: "403",
		`{"code":"` + code + `","order_id":"o","campaign":"summer"}`: "",
	} {
		m, err := limited.Request("scrip.redeem", []byte(body), patience)
		if err != nil || m.Header.Get("Nats-Service-Error-Code") != want {
			t.Errorf("%s: %v, %v", body, m, err)
		}
	}
	// A number can be guessed, so a producer's commands cannot name it so: on no subject, whoever they claim to be.
	for subject, body := range map[string]string{"scrip.cmd.summer": `"type":"redeem","n":2`, "scrip.lane.0.shop": `"type":"redeem","campaign":"summer","n":2`} {
		msg := &nats.Msg{Subject: subject, Data: []byte(`{"id":"by-n","order_id":"stolen",` + body + `}`), Header: nats.Header{"Scrip-By": {"ann of support"}}}
		if m, err := shop.RequestMsg(msg, patience); err != nil || !strings.Contains(string(m.Data), `"seq"`) {
			t.Fatalf("%s: %v, %v", subject, m, err)
		}
	}
	if m, err := shop.Request("scrip.redeem", []byte(`{"campaign":"summer","n":2,"order_id":"stolen"}`), patience); err != nil || m.Header.Get("Nats-Service-Error-Code") != "403" {
		t.Errorf("a producer redeems by number: %v, %v", m, err)
	}
	if got := (shell{}).run(t, "extend", "--campaign", "summer", "--n", "2", "--expires", "+1h", "--nats", supportURL); got.code != 0 || !strings.Contains(got.out, "****-****-") {
		t.Errorf("support's extend: exit code %d\n%s%s", got.code, got.out, got.err)
	}
	lines := strings.Join(r.eventLines(t), "\n")
	if strings.Contains(lines, `"coupon.redeemed"`) || strings.Count(lines, `"reason":"n: campaign and n name`) != 2 || !strings.Contains(lines, `"by_n":true,"by":"ann of support"`) {
		t.Errorf("the log has\n%s", lines)
	}
	var event struct{ Type, By string }
	m, err := analyst.Request("JS.scrip.API.STREAM.MSG.GET.SCRIP_EVT_0", []byte(`{"last_by_subj":"scrip.evt.0"}`), patience)
	if err != nil || !strings.Contains(string(m.Data), `"data"`) {
		t.Errorf("an analyst reads %v, %v", m, err)
	}
	for _, line := range r.eventLines(t) {
		if strings.Contains(line, `"coupon.voided"`) {
			if err := json.Unmarshal([]byte(line), &event); err != nil || event.By != "ann of support" {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	if event.Type == "" {
		t.Error("no coupon was voided")
	}

	eventually(t, "the log-in is in the audit stream", func() bool {
		return strings.Contains(string(r.request(t, "scrip.audit.list", `{"kind":"login"}`)), `"key":"`+shopID+`"`)
	})

	// Revoked while streaming.
	ended := make(chan struct{})
	logIn(t, shopURL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ClosedHandler(func(*nats.Conn) { close(ended) }))
	r.request(t, "scrip.access.revoke", `{"key":"`+shopID+`"}`)
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the connection of a revoked key is still open")
	}
	if nc, err := nats.Connect(shopURL); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("the revoked key opens: %v, %v", nc, err)
	}
}

// eventLines returns the lines of all event messages of lane 0.
func (r *rig) eventLines(t *testing.T) []string {
	t.Helper()
	js, err := jetstream.New(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "SCRIP_EVT_0")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(strings.TrimSpace(string(msg.Data)), "\n")...)
	}
	return lines
}
