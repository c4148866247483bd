package natsauth_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestTheTablesHaveEverySubject of the product: endpoints as the service describes them, imports, streams, buckets, lanes.
func TestTheTablesHaveEverySubject(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var described struct{ Endpoints []struct{ Subject string } }
	m, err := r.Conn(t).Request("$SRV.INFO.scrip", nil, 20*time.Second)
	if err != nil || json.Unmarshal(m.Data, &described) != nil {
		t.Fatal(m, err)
	}
	var endpoints, imports, published []string
	for _, e := range described.Endpoints {
		endpoints = append(endpoints, e.Subject)
	}
	for _, row := range natsauth.Rows() {
		if subject := row.Published(); strings.HasPrefix(subject, natsauth.API) {
			imports = append(imports, strings.Replace(subject, "*", "SCRIP_EVT_0", 1))
		} else {
			imports = append(imports, strings.Replace(subject, "scrip.lane.*", "scrip.lane.0", 1))
		}
	}
	for _, stream := range topology.Streams(lanes) {
		published = append(published, "$JS.API.STREAM.INFO."+stream)
		if bucket, kv := strings.CutPrefix(stream, "KV_"); kv {
			published = append(published, "$KV."+bucket+".probe")
		}
	}
	inTable(t, "the service", endpoints...)
	inTable(t, "natsauth", imports...)
	inTable(t, "topology", append(published, "scrip.admin.summer", topology.LaneCmd(0), topology.LaneShop(0), topology.LaneCmdFor(0, "winter"), topology.LaneAdminFor(0, "winter"),
		topology.LaneDue(0), topology.LaneQuery(0), topology.Evt(0), topology.Rmd(0), topology.AuditSubject)...)
}

// TestEveryCell: each kind of user and each subject. What is not allowed is refused by NATS, and leaves no trace in any stream.
// What is allowed is answered: by the service, which does not understand the body, by NATS, or as stored.
func TestEveryCell(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for lane := range lanes {
		if _, err := r.js.Publish(t.Context(), topology.Evt(lane), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Conn(t).Subscribe(natsauth.Rollcall, func(m *nats.Msg) { _ = m.Respond([]byte(`{"server":"one"}`)) }); err != nil {
		t.Fatal(err)
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		t.Run(kind, func(t *testing.T) {
			g := r.guest(t, r.keys.add(kinds[kind]))
			before := r.shape(t)
			refuseAll(t, g, kind)
			same(t, before, r.shape(t))

			for _, subject := range may(kind) {
				body := `{"colour":1}`
				switch {
				case strings.Contains(subject, "MSG.GET"):
					body = `{"seq":1}`
				case strings.HasPrefix(subject, natsauth.API):
					body = ""
				}
				m, err := g.Request(subject, []byte(body), 20*time.Second)
				if err != nil {
					t.Errorf("%s: %v", subject, err)
					continue
				}
				answer := string(m.Data)
				if len(answer) == 0 || m.Header.Get("Nats-Service-Error-Code") == "403" || strings.Contains(answer, `"error":{`) {
					t.Errorf("%s: %s %v", subject, answer, m.Header)
				}
				stored := strings.HasPrefix(subject, "scrip.cmd.") || strings.HasPrefix(subject, "scrip.lane.")
				if stored && !strings.Contains(answer, `"stream":"SCRIP_CMD_`) {
					t.Errorf("%s was not stored: %s", subject, answer)
				}
			}
			g.allowed(t)
		})
	}
}

// refuseAll publishes to all that a kind may not publish to, with a reply subject and without, and waits for each refusal.
func refuseAll(t *testing.T, g guest, kind string) {
	t.Helper()
	for few := range slices.Chunk(mayNot(kind), 500) { // each refusal is an error in the channel
		for _, subject := range few {
			streamtest.Must(t, errors.Join(g.PublishRequest(subject, g.NewInbox(), []byte("{}")), g.Publish(subject, nil)))
		}
		for _, subject := range few {
			for range 2 {
				expectDenied(t, g, subject)
			}
		}
	}
}

// allowed fails the test if anything was refused before what it is refused itself: errors come in order, and late.
func (g guest) allowed(t *testing.T) {
	t.Helper()
	const closed = "scrip.other"
	streamtest.Must(t, g.Publish(closed, nil))
	expectDenied(t, g, closed)
}

// deniedSubscriptions subscribes to each subject, and waits for each refusal.
func (g guest) deniedSubscriptions(t *testing.T, subjects ...string) {
	t.Helper()
	for _, subject := range subjects {
		if _, err := g.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		streamtest.Must(t, g.Flush())
		expectDenied(t, g, subject)
	}
}

func expectDenied(t *testing.T, g guest, subject string) {
	t.Helper()
	select {
	case err := <-g.denied:
		if !strings.Contains(strings.ToLower(err), "permissions violation") || !strings.Contains(err, fmt.Sprintf("%q", subject)) {
			t.Errorf("%s: %s", subject, err)
		}
	case <-time.After(3 * time.Minute):
		t.Fatalf("%s: not refused", subject)
	}
}

func same(t *testing.T, before, now map[string]string) {
	t.Helper()
	for name := range maps.Keys(before) {
		if before[name] != now[name] {
			t.Errorf("stream %s was\n%s\nand is\n%s", name, before[name], now[name])
		}
	}
	if len(before) != len(now) {
		t.Errorf("%d streams became %d", len(before), len(now))
	}
}

// sameButCommands is same, where those who may claim did.
func (r *rig) sameButCommands(t *testing.T, before map[string]string) {
	t.Helper()
	now := r.shape(t)
	for lane := range lanes {
		before[topology.CmdStream(lane)], now[topology.CmdStream(lane)] = "", ""
	}
	same(t, before, now)
}

// hostile are subjects that mean something in the account of the servers, named as reply subjects.
var hostile = []string{
	"scrip.evt.0", "scrip.evt.1", "scrip.rmd.0", "$KV.SCRIP_LEASE.lease.lane.1", "$KV.SCRIP_STATE.log", "$KV.SCRIP_CONFIG.change.1",
	"$JS.API.STREAM.DELETE.SCRIP_EVT_0", "$JS.API.STREAM.PURGE.SCRIP_CMD_0", "$JS.API.STREAM.DELETE.KV_SCRIP_STATE",
	"$JS.API.CONSUMER.CREATE.SCRIP_EVT_0", "scrip.lane.0.cmd", "scrip.lane.0.due", "scrip.lane.0.admin.summer", "scrip.admin.summer",
	"$O.SCRIP_SNAP.M.x",
}

// TestRepliesStayInTheAccount: each kind of user names every hostile subject as reply, in every request that it may make,
// those that NATS answers itself and those with an empty answer included.
func TestRepliesStayInTheAccount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for kind, principal := range kinds {
		t.Run(kind, func(t *testing.T) {
			g := r.guest(t, r.keys.add(principal))
			before := r.shape(t)
			for _, subject := range append(may(kind), natsauth.UserInfo) {
				for i, reply := range hostile {
					for _, body := range []string{"", "{}", `{"seq":1}`, `{"code":"x"}`, fmt.Sprintf(`{"customer_id":"%s-%d"}`, kind, i)} {
						streamtest.Must(t, g.PublishRequest(subject, reply, []byte(body)))
					}
				}
			}
			streamtest.Must(t, g.Flush())
			r.settle(t)
			r.sameButCommands(t, before)
		})
	}
}

// TestAnswersAreNoRequests: an answer whose reply subject is an endpoint that the account imports, and that the user may not
// use, has no effect: NATS passes it on as a request of the server that sent it.
func TestAnswersAreNoRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, kind := range []string{"support", "limited", "public"} {
		g := r.guest(t, r.keys.add(kinds[kind]))
		before := r.shape(t)
		for _, row := range natsauth.Rows() {
			reply := strings.Replace(row.Published(), "*", "summer", 1)
			for _, subject := range []string{"scrip.coupon.validate", "$SRV.INFO.scrip", natsauth.UserInfo} {
				for _, body := range []string{"", "{}", `{"code":"x"}`, `{"code":"x","campaign":"summer"}`} {
					streamtest.Must(t, g.PublishRequest(subject, reply, []byte(body)))
				}
			}
		}
		if _, err := g.Request("$SRV.INFO.scrip", nil, 20*time.Second); err != nil {
			t.Fatal(err)
		}
		_, had := r.owner.Seen()
		r.settle(t)
		if _, now := r.owner.Seen(); now-had > 4 { // those of settle
			t.Errorf("%s: %d lines were decided: %+v", kind, now-had, r.owner.Commands())
		}
		r.sameButCommands(t, before)
	}
}

// settle returns when nothing that was sent before is under way: the service and the lanes have answered what came later.
func (r *rig) settle(t *testing.T) {
	t.Helper()
	nc := r.Conn(t)
	for i, campaign := range []string{"summer", "winter", "spring", "autumn"} {
		if _, err := nc.Request("scrip.claim."+campaign, fmt.Appendf(nil, `{"customer_id":"settle-%d-%s"}`, i, t.Name()), 20*time.Second); err != nil {
			t.Fatal(err)
		}
	}
}
