package client_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

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
	r := &rig{owner: streamtest.StartOwner(t, connect("server"), topology.Spec{Lanes: 2}), codec: code.New([32]byte{7})}
	r.serveOn(t, connect("server"), r.owner.Log)
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
