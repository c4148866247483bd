package natsauth_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// allowed is what each kind of user may publish to, beside natsauth.UserInfo, of the subjects in universe. It repeats what
// the table of package access says, so that a change there is noticed here.
var allowed = map[string]string{
	"producer": "scrip.claim.summer scrip.claim.winter scrip.redeem scrip.rollback scrip.remind.summer scrip.unremind.summer " +
		"scrip.coupon.validate scrip.cmd.summer scrip.lane.0.shop scrip.lane.1.shop $SRV.INFO.scrip",
	"limited": "scrip.claim.summer scrip.redeem scrip.rollback scrip.remind.summer scrip.unremind.summer scrip.coupon.validate $SRV.INFO.scrip",
	"public":  "$SRV.INFO.scrip",
	"support": "scrip.rollback scrip.void scrip.extend scrip.coupon.validate scrip.coupon.show scrip.customer.show " +
		"scrip.campaign.show scrip.campaign.list $SRV.INFO.scrip",
	"operator": "scrip.claim.summer scrip.claim.winter scrip.redeem scrip.rollback scrip.remind.summer scrip.unremind.summer " +
		"scrip.void scrip.extend scrip.coupon.validate scrip.coupon.show scrip.customer.show scrip.campaign.show scrip.campaign.list " +
		"scrip.campaign.create scrip.campaign.update scrip.campaign.pause scrip.campaign.resume scrip.campaign.end scrip.codes.import " +
		"scrip.access.create scrip.access.list scrip.access.revoke scrip.access.rotate scrip.config.set scrip.audit.list " +
		"scrip.sender.open scrip.sender.next scrip.sender.ack scrip.sender.store " +
		"scrip.config.get scrip.config.history scrip.codes.export scrip.status.show scrip.deadletter.list " +
		"$SRV.INFO.scrip $SRV.PING.scrip $SRV.STATS.scrip scrip.rollcall " +
		"JS.scrip.API.STREAM.INFO.SCRIP_CMD_0 JS.scrip.API.STREAM.INFO.SCRIP_EVT_0 JS.scrip.API.STREAM.INFO.SCRIP_RMD_0 " +
		"JS.scrip.API.STREAM.INFO.KV_SCRIP_LEASE JS.scrip.API.STREAM.INFO.KV_SCRIP_STATE",
	"analyst": "JS.scrip.API.STREAM.INFO.SCRIP_EVT_0",
	"clear":   "JS.scrip.API.STREAM.INFO.SCRIP_EVT_0 JS.scrip.API.STREAM.MSG.GET.SCRIP_EVT_0",
	"sender":  "scrip.sender.open scrip.sender.next scrip.sender.ack scrip.sender.store",
}

// universe are the subjects with a meaning in the account of the servers: all of topology, of the service and of JetStream's
// API on our streams and buckets.
func universe() []string {
	all := []string{
		"scrip.lane.0.query", "scrip.push.dead.shop.1", natsauth.Rollcall, natsauth.Connections, natsauth.Kick("NSERVER"),
		"$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.USER.AUTH", "$SYS.REQ.CLAIMS.UPDATE",
		"$SRV.PING", "$SRV.INFO", "$SRV.STATS", "$SRV.PING.scrip", "$SRV.INFO.scrip", "$SRV.STATS.scrip",
		"_INBOX.x", "_INBOX_shop.other.x", "_INBOX_ops.other.x", "_R_.x", "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST",
		"$JS.API.ACCOUNT.PURGE.$G", "$JS.API.META.LEADER.STEPDOWN", "$JS.API.SERVER.REMOVE",
		"scrip.claim.summer", "scrip.claim.winter",
	}
	for _, row := range natsauth.Rows() {
		for _, subject := range []string{row.Subject, row.Published()} {
			if s := strings.TrimSuffix(subject, "*"); strings.HasPrefix(s, "scrip.") && !strings.Contains(s, "*") {
				if s != subject {
					s += "summer"
				}
				all = append(all, s)
			}
		}
	}
	all = append(all, topology.AdminSubject("summer"))
	for lane := range lanes {
		all = append(all, topology.LaneCmd(lane), topology.LaneShop(lane), topology.LaneCmdFor(lane, "summer"),
			topology.LaneAdminFor(lane, "summer"), topology.LaneDue(lane), topology.Evt(lane), topology.Rmd(lane))
	}
	for bucket, key := range map[string]string{topology.LeaseBucket: "lease.lane.1", topology.StateBucket: "log", topology.SettingsBucket: "change.1"} {
		all = append(all, "$KV."+bucket+"."+key)
	}
	all = append(all, "$O."+topology.SnapBucket+".M.x", "$O."+topology.SnapBucket+".C.x")
	for _, stream := range []string{topology.CmdStream(0), topology.EvtStream(0), topology.RmdStream(0), topology.LeaseStream, topology.StateStream,
		topology.SnapStream, topology.SettingsStream} {
		for _, call := range []string{"STREAM.CREATE.#", "STREAM.UPDATE.#", "STREAM.DELETE.#", "STREAM.PURGE.#", "STREAM.INFO.#", "STREAM.SNAPSHOT.#",
			"STREAM.RESTORE.#", "STREAM.MSG.GET.#", "STREAM.MSG.DELETE.#", "STREAM.LEADER.STEPDOWN.#", "STREAM.PEER.REMOVE.#",
			"CONSUMER.CREATE.#", "CONSUMER.CREATE.#.name", "CONSUMER.CREATE.#.name.scrip.evt.0", "CONSUMER.DURABLE.CREATE.#.name", "CONSUMER.DELETE.#.name",
			"CONSUMER.INFO.#.name", "CONSUMER.NAMES.#", "CONSUMER.LIST.#", "CONSUMER.MSG.NEXT.#.name", "CONSUMER.PAUSE.#.name", "CONSUMER.RESET.#.name",
			"CONSUMER.UNPIN.#.name", "CONSUMER.LEADER.STEPDOWN.#.name", "DIRECT.GET.#", "DIRECT.GET.#.scrip.evt.0"} {
			all = append(all, "$JS.API."+strings.ReplaceAll(call, "#", stream), natsauth.API+strings.ReplaceAll(call, "#", stream))
		}
		all = append(all, "$JS.ACK."+stream+".name.1.1.1.1.1", "$JS.FC."+stream+".name.x", "$JS.SNAPSHOT.ACK."+stream+".x", "$JS.SNAPSHOT.RESTORE."+stream+".x")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestEveryCell: each kind of user and each subject. What is allowed is answered. What is not is refused by NATS, and leaves no
// trace in any stream.
func TestEveryCell(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for kind, principal := range kinds {
		t.Run(kind, func(t *testing.T) {
			g := r.guest(t, r.keys.add(principal))
			may := strings.Fields(allowed[kind])
			for _, subject := range may {
				if !slices.Contains(universe(), subject) {
					t.Errorf("%s is not in the universe", subject)
				}
			}
			before := r.shape(t)
			var refused []string
			for _, subject := range universe() {
				if slices.Contains(may, subject) {
					continue
				}
				refused = append(refused, subject)
				if err := errors.Join(g.PublishRequest(subject, g.NewInbox(), []byte("{}")), g.Publish(subject, nil)); err != nil {
					t.Fatal(err)
				}
			}
			for _, subject := range refused {
				for range 2 {
					expectDenied(t, g, subject)
				}
			}
			same(t, before, r.shape(t))

			for _, subject := range may {
				m, err := g.Request(subject, []byte(`{"seq":1}`), 20*time.Second)
				if err != nil && !(subject == natsauth.Rollcall && errors.Is(err, nats.ErrNoResponders)) {
					t.Errorf("%s: %v", subject, err)
				} else if err == nil && (len(m.Data) == 0 || strings.Contains(string(m.Data), "not enabled")) {
					t.Errorf("%s: the answer is %s %v", subject, m.Data, m.Header)
				}
			}
			select {
			case err := <-g.denied:
				t.Error(err)
			default:
			}
		})
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
			for _, subject := range append(strings.Fields(allowed[kind]), natsauth.UserInfo) {
				for i, reply := range hostile {
					for _, body := range []string{"", "{}", `{"seq":1}`, `{"code":"x"}`, fmt.Sprintf(`{"customer_id":"%s-%d"}`, kind, i)} {
						if err := g.PublishRequest(subject, reply, []byte(body)); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if err := g.Flush(); err != nil {
				t.Fatal(err)
			}
			r.settle(t)
			now := r.shape(t)
			for lane := range lanes { // those who may claim did
				name := topology.CmdStream(lane)
				before[name], now[name] = "", ""
			}
			same(t, before, now)
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
					if err := g.PublishRequest(subject, reply, []byte(body)); err != nil {
						t.Fatal(err)
					}
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
		now := r.shape(t)
		for lane := range lanes {
			before[topology.CmdStream(lane)], now[topology.CmdStream(lane)] = "", ""
		}
		same(t, before, now)
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
