package natsauth_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// letters are the kinds of users in the tables below: those of kinds, and X, the servers.
var letters = map[byte]string{
	'P': "producer", 'L': "limited", 'R': "rated", 'B': "public", 'U': "support", 'O': "operator", 'A': "analyst", 'C': "clear", 'S': "sender", 'X': "servers",
}

// subjectTable is who may publish to what, with a body that has an effect: a subject, the kinds, the body. $… is a value that
// fixture makes. The rows are written down here and follow from nothing, so that a change of the product is noticed.
const subjectTable = `
scrip.claim.summer         PLROX {"customer_id":"$new"}
scrip.claim.winter         PROX {"customer_id":"$new"}
scrip.redeem               PLROX {"code":"$code","order_id":"$new","campaign":"summer"}
scrip.rollback             PLRUOX {"code":"$redeemed","order_id":"$order","campaign":"summer"}
scrip.remind.summer        PLROX {"customer_id":"$holder","kind":"expires","before":"24h"}
scrip.unremind.summer      PLROX {"customer_id":"$reminded","kind":"expires","before":"24h"}
scrip.void                 UOX  {"code":"$code","reason":"lost"}
scrip.extend               UOX  {"code":"$code","expires_at":"2999-01-01T00:00:00Z"}
scrip.coupon.validate      PLRUOX {"code":"$code","campaign":"summer"}
scrip.coupon.show          UOX  {"code":"$code"}
scrip.customer.show        UOX  {"customer_id":"$holder"}
scrip.campaign.show        UOX  {"campaign":"summer"}
scrip.campaign.list        UOX  {}
scrip.campaign.create      OX   {"campaign":"$new","codes":5}
scrip.campaign.update      OX   {"campaign":"$campaign","max_redemptions":3}
scrip.campaign.pause       OX   {"campaign":"$campaign"}
scrip.campaign.resume      OX   {"campaign":"$paused"}
scrip.campaign.end         OX   {"campaign":"$campaign"}
scrip.codes.import         OX   {"campaign":"$imported","codes":["$CODE"]}
scrip.codes.export         OX   {"campaign":"summer"}
scrip.access.create        OX   {"name":"$new","role":"support"}
scrip.access.list          OX   {}
scrip.access.revoke        OX   {"key":"$key"}
scrip.access.rotate        OX   {"key":"$key"}
scrip.config.get           OX   {}
scrip.config.set           OX   {"setting":"reminder.batch","value":"$number"}
scrip.config.history       OX   {}
scrip.audit.list           OX   {}
scrip.status.show          OX   {}
scrip.deadletter.list      OX   {}
scrip.deadletter.show      OX   {"id":"SCRIP_CMD_0/12/3"}
scrip.deadletter.retry     OX   {"id":"SCRIP_CMD_0/12/3"}
scrip.deadletter.discard   OX   {"ids":["SCRIP_CMD_0/12/3"]}
scrip.webhook.create       OX   {"url":"https://shop.example/","types":["coupon.*"]}
scrip.webhook.list         OX   {}
scrip.webhook.show         OX   {"webhook":"$hook"}
scrip.webhook.update       OX   {"webhook":"$hook","rate":7}
scrip.webhook.rotate       OX   {"webhook":"$hook"}
scrip.webhook.pause        OX   {"webhook":"$hook"}
scrip.webhook.resume       OX   {"webhook":"$hook"}
scrip.webhook.delete       OX   {"webhook":"$hook"}
scrip.webhook.replay       OX   {"webhook":"$hook","from":"2020-01-01T00:00:00Z"}
scrip.webhook.test         OX   {"webhook":"$hook"}
scrip.webhook.deadletters  OX   {"webhook":"$hook"}
scrip.webhook.retry        OX   {"webhook":"$hook"}
scrip.rebuild.start        OX   {}
scrip.rebuild.undo         OX   {}
scrip.rebuild.drop         OX   {}
scrip.verify.start         OX   {}
scrip.backup.start         OX   {"name":"$new"}
scrip.job.show             OX   {"id":"$job"}
scrip.job.list             OX   {}
scrip.sender.open          SO   {"name":"push","since":"start"}
scrip.sender.next          SO   {"name":"push","lane":0,"wait":1000000000}
scrip.sender.ack           SO   {"name":"push","token":"$token","as":"ack"}
scrip.sender.store         SO   {"name":"push","do":"count","counts":{"lane":0,"delivered":1}}
scrip.rollcall             OX   {}
$SRV.INFO.scrip            PLRBUOX
$SRV.PING.scrip            O
$SRV.STATS.scrip           O
scrip.cmd.summer           PX   {"id":"$new","type":"claim","customer_id":"$new"}
scrip.admin.summer         X    {"id":"$new","type":"pause_campaign"}
scrip.lane.0.shop          PX   {"id":"$new","type":"claim","campaign":"winter","customer_id":"$new"}
scrip.lane.1.shop          PX   {"id":"$new","type":"claim","campaign":"summer","customer_id":"$new"}
scrip.lane.0.cmd           X    {"id":"$new","type":"claim","campaign":"winter","customer_id":"$new"}
scrip.lane.0.cmd.winter    X    {"id":"$new","type":"claim","customer_id":"$new"}
scrip.lane.0.admin.winter  X    {"id":"$new","type":"pause_campaign"}
scrip.lane.0.due           X    {"id":"$new"}
scrip.lane.0.query         X    {"query":"campaign.list"}
scrip.evt.0                X    {}
scrip.rmd.0                X    {}
scrip.audit                X    {}
scrip.push.dead.shop.1     X    {}
scrip.push.wait.shop.1     X    {}
scrip.access.connections   X    {}
$SYS.REQ.SERVER.N.KICK     X    {"cid":0}
$KV.SCRIP_LEASE.probe      X    {}
$KV.SCRIP_STATE.probe      X    {}
$KV.SCRIP_CONFIG.probe     X    {}
$KV.SCRIP_ACCESS.probe     X    {}
$KV.SCRIP_WEBHOOKS.probe   X    {}
$KV.SCRIP_PUSH.probe       X    {}
$KV.SCRIP_JOBS.probe       X    {}
$KV.OTHER.probe            -
$O.SCRIP_SNAP.M.x          X    {}
$O.SCRIP_SNAP.C.x          X    {}
$SYS._INBOX.x              X
_INBOX.x                   X
_INBOX_producer.other.x    X
_INBOX_ops.other.x         -
_R_.x                      X
scrip.guest.OPS.void       -
scrip.guest.SHOP.redeem    -
scrip.other                -
orders.new                 -
$SYS.REQ.SERVER.PING       -
$SYS.REQ.SERVER.PING.CONNZ -
$SYS.REQ.SERVER.N.RELOAD   -
$SYS.REQ.ACCOUNT.PING.CONNZ -
$SYS.REQ.USER.AUTH         -
$SYS.REQ.CLAIMS.UPDATE     -
$SRV.PING                  -
$SRV.INFO                  -
$SRV.STATS                 -
$JS.API.INFO               X
$JS.API.STREAM.NAMES       X
$JS.API.STREAM.LIST        -
$JS.API.ACCOUNT.PURGE.$G   -
$JS.API.META.LEADER.STEPDOWN -
$JS.API.SERVER.REMOVE      -
`

// streamTable are the streams, and short names for them.
const streamTable = `
SCRIP_CMD_0 CMD
SCRIP_CMD_1 CMD
SCRIP_EVT_0 EVT
SCRIP_EVT_1 EVT
SCRIP_RMD_0 RMD
SCRIP_RMD_1 RMD
KV_SCRIP_STATE STATE
KV_SCRIP_LEASE LEASE
OBJ_SCRIP_SNAP SNAP
KV_SCRIP_CONFIG CONFIG
KV_SCRIP_ACCESS ACCESS
KV_SCRIP_WEBHOOKS WEBHOOKS
SCRIP_AUDIT AUDIT
KV_SCRIP_PUSH PUSH
KV_SCRIP_JOBS JOBS
SCRIP_PUSH_WAIT WAIT
SCRIP_PUSH_DEAD DEAD
FOREIGN FOREIGN
KV_FOREIGN FOREIGN
`

// callTable is who may send which request of JetStream about which streams; * = all of ours. Requests that are not here are
// closed to all. Those of users with keys have a prefix of their own.
const callTable = `
$JS.API.STREAM.CREATE.#               X:*
$JS.API.STREAM.UPDATE.#               X:*
$JS.API.STREAM.DELETE.#               X:*
$JS.API.STREAM.INFO.#                 X:*
$JS.API.STREAM.SNAPSHOT.#             X:*
$JS.API.STREAM.RESTORE.#              X:*
$JS.API.STREAM.MSG.GET.#              X:*
$JS.API.STREAM.PURGE.#                X:CMD,SNAP,WAIT
$JS.API.STREAM.MSG.DELETE.#           X:DEAD
$JS.API.CONSUMER.CREATE.#.name        X:*
$JS.API.CONSUMER.CREATE.#.name.scrip.evt.0 X:*
$JS.API.CONSUMER.INFO.#.name          X:*
$JS.API.CONSUMER.MSG.NEXT.#.name      X:*
$JS.API.CONSUMER.DELETE.#.name        X:*
$JS.API.DIRECT.GET.#                  X:STATE,LEASE,SNAP,PUSH,JOBS
$JS.API.DIRECT.GET.#.scrip.evt.0      X:STATE,LEASE,SNAP,PUSH,JOBS
$JS.ACK.#.name.1.1.1.1.1              X:EVT,RMD,WAIT
$JS.ACK._.hash.#.name.1.1.1.1.1       X:EVT,RMD,WAIT
$JS.FC.#.name.x                       X:STATE,SNAP,JOBS
$JS.FC._.hash.#.name.x                X:STATE,SNAP,JOBS
$JS.SNAPSHOT.ACK.#.x                  X:*
$JS.SNAPSHOT.RESTORE.#.x              X:*
JS.scrip.API.STREAM.INFO.#            O:CMD,EVT,RMD,LEASE,STATE A:EVT C:EVT
JS.scrip.API.STREAM.MSG.GET.#         C:EVT
`

// otherCalls are the requests of JetStream that are closed to all.
var otherCalls = strings.Fields(`STREAM.LEADER.STEPDOWN.# STREAM.PEER.REMOVE.# CONSUMER.CREATE.# CONSUMER.DURABLE.CREATE.#.name CONSUMER.NAMES.# CONSUMER.LIST.#
	CONSUMER.PAUSE.#.name CONSUMER.RESET.#.name CONSUMER.UNPIN.#.name CONSUMER.LEADER.STEPDOWN.#.name`)

// cell is a subject of the tables.
type cell struct {
	who  string // letters
	body string
}

// cells are the tables, by subject.
func cells(t testing.TB) map[string]cell {
	t.Helper()
	all := map[string]cell{}
	for line := range strings.Lines(strings.TrimSpace(subjectTable)) {
		f := strings.SplitN(strings.Join(strings.Fields(line), " "), " ", 3)
		all[f[0]] = cell{who: strings.Trim(f[1], "-"), body: append(f, "")[2]}
	}
	streams := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(streamTable)) {
		f := strings.Fields(line)
		streams[f[0]] = f[1]
	}
	calls := map[string][]string{}
	for line := range strings.Lines(strings.TrimSpace(callTable)) {
		f := strings.Fields(line)
		calls[f[0]] = f[1:]
		if call, api := strings.CutPrefix(f[0], "$JS.API."); api && calls["JS.scrip.API."+call] == nil {
			calls["JS.scrip.API."+call] = []string{}
		}
	}
	for _, call := range otherCalls {
		calls["$JS.API."+call], calls["JS.scrip.API."+call] = []string{}, []string{}
	}
	for call, rights := range calls {
		for stream, short := range streams {
			c := cell{}
			for _, right := range rights {
				who, of, _ := strings.Cut(right, ":")
				if of == "*" && short != "FOREIGN" || slices.Contains(strings.Split(of, ","), short) {
					c.who += who
				}
			}
			all[strings.ReplaceAll(call, "#", stream)] = c
		}
	}
	return all
}

// may are the subjects that a kind may publish to, sorted.
func may(t testing.TB, kind string) (subjects []string) {
	t.Helper()
	for subject, c := range cells(t) {
		for i := range len(c.who) {
			if letters[c.who[i]] == "" {
				t.Fatalf("%s: there is no kind %c", subject, c.who[i])
			}
			if letters[c.who[i]] == kind {
				subjects = append(subjects, subject)
			}
		}
	}
	slices.Sort(subjects)
	return subjects
}

// mayNot are the others.
func mayNot(t testing.TB, kind string) (subjects []string) {
	t.Helper()
	allowed := may(t, kind)
	for _, subject := range slices.Sorted(maps.Keys(cells(t))) {
		if !slices.Contains(allowed, subject) {
			subjects = append(subjects, subject)
		}
	}
	return subjects
}

// inTable fails the test for a subject of the product that the tables lack.
func inTable(t *testing.T, of string, subjects ...string) {
	t.Helper()
	all := cells(t)
	for _, subject := range subjects {
		if _, has := all[strings.ReplaceAll(subject, "*", "summer")]; !has {
			t.Errorf("%s: the tables above lack %s: write down who may publish to it", of, subject)
		}
	}
	if len(subjects) == 0 {
		t.Error(fmt.Sprint(of, " has none"))
	}
}
