package natsauth_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// letters are the kinds of users in the tables below: those of kinds, and X, the servers.
var letters = map[byte]string{
	'P': "producer", 'L': "limited", 'R': "rated", 'N': "new", 'B': "public", 'U': "support", 'O': "operator", 'A': "analyst", 'C': "clear", 'S': "sender", 'X': "servers",
}

// subjectTable is who may publish to what beside the endpoints of operations: a subject, the kinds. The rows follow from nothing,
// so that a change of the product is noticed.
const subjectTable = `
scrip.rollcall             OX
$SRV.INFO.scrip            PLRNBUOX
$SRV.PING.scrip            O
$SRV.STATS.scrip           O
scrip.cmd.summer           PX
scrip.admin.summer         X
scrip.lane.0.shop          PX
scrip.lane.1.shop          PX
scrip.lane.0.cmd           X
scrip.lane.0.cmd.winter    X
scrip.lane.0.admin.winter  X
scrip.lane.0.due           X
scrip.lane.0.query         X
scrip.evt.0                X
scrip.rmd.0                X
scrip.audit                X
scrip.push.dead.shop.1     X
scrip.push.wait.shop.1     X
scrip.access.connections   X
$SYS.REQ.SERVER.N.KICK     X
$KV.SCRIP_LEASE.probe      X
$KV.SCRIP_STATE.probe      X
$KV.SCRIP_CONFIG.probe     X
$KV.SCRIP_ACCESS.probe     X
$KV.SCRIP_WEBHOOKS.probe   X
$KV.SCRIP_PUSH.probe       X
$KV.SCRIP_JOBS.probe       X
$KV.SCRIP_ONCE.probe       X
$KV.SCRIP_OPTOUT.probe     X
$KV.OTHER.probe            -
$O.SCRIP_SNAP.M.x          X
$O.SCRIP_SNAP.C.x          X
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
$JS.API.INFO               -
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
KV_SCRIP_ONCE ONCE
KV_SCRIP_OPTOUT OPTOUT
SCRIP_PUSH_WAIT WAIT
SCRIP_PUSH_DEAD DEAD
SCRIP_PUSH_OUT OUT
FOREIGN FOREIGN
KV_FOREIGN FOREIGN
`

// notCopied are the short names of streams that no backup has.
var notCopied = []string{"FOREIGN", "LEASE", "JOBS", "ONCE"}

// callTable is who may send which request of JetStream about which streams; * = all of ours, COPIED = those of a backup. Requests that are not here are
// closed to all. Those of users with keys have a prefix of their own.
const callTable = `
$JS.API.STREAM.CREATE.#               X:*
$JS.API.STREAM.UPDATE.#               X:COPIED,LEASE
$JS.API.STREAM.DELETE.#               X:COPIED
$JS.API.STREAM.INFO.#                 X:*
$JS.API.STREAM.SNAPSHOT.#             X:COPIED
$JS.API.STREAM.RESTORE.#              X:COPIED
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
$JS.ACK.#.name.1.1.1.1.1              X:EVT,RMD,WAIT,OUT
$JS.ACK._.hash.#.name.1.1.1.1.1       X:EVT,RMD,WAIT,OUT
$JS.FC.#.name.x                       X:STATE,SNAP,JOBS
$JS.FC._.hash.#.name.x                X:STATE,SNAP,JOBS
$JS.SNAPSHOT.ACK.#.id.131072.59       X:COPIED
$JS.SNAPSHOT.RESTORE.#.x              X:COPIED
JS.scrip.API.STREAM.INFO.#            O:CMD,EVT,RMD,LEASE,STATE A:EVT C:EVT
JS.scrip.API.STREAM.MSG.GET.#         C:EVT
`

// otherCalls are the requests of JetStream that are closed to all.
var otherCalls = strings.Fields(`STREAM.LEADER.STEPDOWN.# STREAM.PEER.REMOVE.# CONSUMER.CREATE.# CONSUMER.DURABLE.CREATE.#.name CONSUMER.NAMES.# CONSUMER.LIST.#
	CONSUMER.PAUSE.#.name CONSUMER.RESET.#.name CONSUMER.UNPIN.#.name CONSUMER.LEADER.STEPDOWN.#.name`)

// cells are who may publish to each subject, in letters: the tables, and the endpoints of operations for their roles. Keys with the
// public right have none of those.
func cells() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(subjectTable)) {
		f := append(strings.Fields(line), "")
		all[f[0]] = strings.Trim(f[1], "-")
	}
	for op := range access.Operations() {
		for _, endpoint := range op.Endpoints() {
			for _, campaign := range []string{"summer", "winter"} {
				who := "X"
				if op == access.OpReadReminders { // servers have the streams themselves
					who = ""
				}
				for letter, kind := range letters {
					p := kinds[kind]
					limited := p.Campaigns != nil && (op.Whole() || strings.HasSuffix(endpoint, "*") && !slices.Contains(p.Campaigns, campaign))
					if slices.Contains(op.Roles(), p.Role) && !p.Public && !limited {
						who += string(letter)
					}
				}
				all["scrip."+strings.Replace(endpoint, "*", campaign, 1)] = who
			}
		}
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
			allowed := ""
			for _, right := range rights {
				who, of, _ := strings.Cut(right, ":")
				some := strings.Split(of, ",")
				if of == "*" && short != "FOREIGN" || slices.Contains(some, "COPIED") && !slices.Contains(notCopied, short) || slices.Contains(some, short) {
					allowed += who
				}
			}
			all[strings.ReplaceAll(call, "#", stream)] = allowed
		}
	}
	return all
}

// may are the subjects that a kind with a key may publish to, and mayNot the others, also of servers, sorted.
func may(kind string) []string { return subjects(kind, true) }

func mayNot(kind string) []string { return subjects(kind, false) }

func subjects(kind string, allowed bool) (all []string) {
	of := cells()
	for _, subject := range slices.Sorted(maps.Keys(of)) {
		is := func(letter rune) bool { return letters[byte(letter)] == kind }
		if strings.ContainsFunc(of[subject], is) == allowed {
			all = append(all, subject)
		}
	}
	return all
}

// inTable fails the test for a subject of the product that the tables lack.
func inTable(t *testing.T, of string, subjects ...string) {
	t.Helper()
	all := cells()
	for _, subject := range subjects {
		if _, has := all[strings.ReplaceAll(subject, "*", "summer")]; !has {
			t.Errorf("%s: the tables above lack %s: write down who may publish to it", of, subject)
		}
	}
	if len(subjects) == 0 {
		t.Error(fmt.Sprint(of, " has none"))
	}
}
