package natsauth_test

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// servers is a connection with the credentials of the servers.
func (r *rig) servers(t *testing.T) guest {
	t.Helper()
	g := guest{denied: make(chan string, 4096)}
	failed := func(_ *nats.Conn, _ *nats.Subscription, err error) { g.denied <- err.Error() }
	g.Conn = r.Conn(t, nats.UserInfo(streamtest.ServersUser, streamtest.ServersPassword), nats.ErrorHandler(failed))
	return g
}

// TestServersMayWhatTheyNeed and nothing else: the user of the servers, and of the data directory. What it was seen to publish is
// tried on a server without a log, as some of it removes streams; each cell that is closed is refused.
func TestServersMayWhatTheyNeed(t *testing.T) {
	t.Parallel()
	r := newRig(t, streamtest.Refusing)
	before := r.shape(t)
	refuseAll(t, r.servers(t), "servers")
	same(t, before, r.shape(t))
	g := newRigWithout(t, streamtest.Refusing).servers(t)
	for _, subject := range recorded(t, "servers", "publish") {
		streamtest.Must(t, g.Publish(subject, nil))
	}
	g.allowed(t)
}

// TestServersHearOnlyWhatTheyServe: no other subject.
func TestServersHearOnlyWhatTheyServe(t *testing.T) {
	t.Parallel()
	g := newRig(t, streamtest.Refusing).servers(t)
	for _, subject := range append(recorded(t, "servers", "subscribe"), "scrip.cmd.*", "scrip.admin.*", "scrip.evt.*", "scrip.rmd.*") { // see elsewhere
		if _, err := g.QueueSubscribeSync(subject, "tests"); err != nil {
			t.Fatal(err)
		}
	}
	g.allowed(t)
	g.deniedSubscriptions(t, ">", "*", "scrip.>", "scrip.*", "scrip.evt.0.more", "scrip.lane.>", "scrip.lane.0.cmd", "scrip.audit", "scrip.push.>",
		"scrip.guest.>", "_INBOX_producer.>", "_R_.>", "$SYS.>", "$SYS.REQ.SERVER.PING", "$JS.>", "$JS.API.>", "$JS.EVENT.ADVISORY.>", "$KV.>",
		"$KV.SCRIP_ACCESS.>", "$O.>", "orders.*")
}

// TestAccountsForFewerLanes: the log's further streams are closed, so the file must be for its number.
func TestAccountsForFewerLanes(t *testing.T) {
	for lanes, want := range map[int]bool{1: false, 4: true, 16: true} {
		if has := slices.Contains(natsauth.OfServers(lanes).Publish, "$JS.API.STREAM.INFO.SCRIP_EVT_3"); has != want {
			t.Errorf("%d lanes: %v", lanes, has)
		}
	}
}
