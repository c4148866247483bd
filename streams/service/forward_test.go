package service

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// forwarder runs one. What it has forwarded is known when stop has returned.
func forwarder(t *testing.T, nc *nats.Conn) (f *Forwarder, stop func()) {
	t.Helper()
	f = NewForwarder(nc, lanes, streamtest.Logger(t))
	f.signals.subscribed.Watch()
	stop = streamtest.Background(t, f.Run)
	f.signals.subscribed.Wait(t)
	streamtest.Must(t, nc.Flush())
	return f, stop
}

// TestTheForwarder replaces the mapping of subjects, where that is missing: with known headers only, and not for a message
// whose PubAck would go elsewhere than to an inbox. A second server shares, it does not double.
func TestTheForwarder(t *testing.T) {
	for name, options := range map[string][]streamtest.Option{"Alone": nil, "BesideTheMapping": {streamtest.Lanes(lanes)}} {
		t.Run(name, func(t *testing.T) {
			server := streamtest.Start(t, options...)
			owner := streamtest.StartOwner(t, server.Conn(t), topology.Spec{Lanes: lanes})
			one, stopOne := forwarder(t, server.Conn(t))
			two, stopTwo := forwarder(t, server.Conn(t))
			conn := server.Conn(t)
			outcomes, err := conn.SubscribeSync(conn.NewInbox())
			streamtest.Must(t, err)
			if err := conn.Publish("scrip.cmd.summer", []byte("x")); err != nil { // without a reply subject it arrives, too
				t.Fatal(err)
			}
			messages := uint64(1)
			for _, test := range []struct {
				subject string
				cmd     wire.Command
				status  string
			}{
				{"scrip.cmd.summer", wire.Command{Type: wire.Claim, CustomerID: "c"}, wire.StatusClaimed},
				{"scrip.cmd.winter", wire.Command{Type: wire.Claim, CustomerID: "c"}, wire.StatusClaimed},
				{"scrip.admin.summer", wire.Command{Type: wire.PauseCampaign}, wire.StatusPaused},
				// Only a lane can report to the producer that this is no name.
				{"scrip.cmd.sum$mer", wire.Command{Type: wire.Claim, CustomerID: "c"}, wire.StatusRefused},
			} {
				test.cmd.ID = test.subject
				m := &nats.Msg{Subject: test.subject, Data: test.cmd.AppendJSON(nil), Header: nats.Header{topology.HeaderReply: {outcomes.Subject}}}
				ack, err := conn.RequestMsg(m, time.Minute)
				if err != nil {
					t.Fatalf("%s: %v", test.subject, err)
				}
				messages++
				has(t, string(ack.Data), `"stream":"SCRIP_CMD_`)
				reply, err := outcomes.NextMsg(time.Minute)
				if err != nil {
					t.Fatalf("%s: %v", test.subject, err)
				}
				if out, err := wire.ParseOutcome(reply.Data[:len(reply.Data)-1]); err != nil || out.ID != test.cmd.ID || out.Status != test.status {
					t.Errorf("%s was answered %s (%v)", test.subject, reply.Data, err)
				}
			}
			if name != "Alone" {
				messages = 0
			} else {
				checkHeaders(t, conn)
				messages++
			}
			stopOne()
			stopTwo()
			streamtest.Equal(t, "messages were forwarded", one.Forwarded()+two.Forwarded(), messages)
			if seen, _ := owner.Seen(); seen < 5 {
				t.Errorf("the lanes have %d messages", seen)
			}
		})
	}
}

// checkHeaders sends two messages of which one may be forwarded.
func checkHeaders(t *testing.T, conn *nats.Conn) {
	t.Helper()
	got, err := conn.SubscribeSync("scrip.lane.*.cmd.headers")
	streamtest.Must(t, err)
	for _, reply := range []string{"scrip.evt.0", "_INBOX.mine"} {
		msg := nats.NewMsg("scrip.cmd.headers")
		msg.Reply, msg.Data = reply, []byte("x")
		for _, name := range []string{topology.HeaderReply, HeaderTimeout, "Scrip-Trace", nats.MsgIdHdr, "Other", "Nats-TTL", "Nats-Rollup", "Nats-Trace-Dest"} {
			msg.Header.Set(name, "1s")
		}
		streamtest.Must(t, conn.PublishMsg(msg))
	}
	m, err := got.NextMsg(time.Minute)
	if err != nil || m.Reply != "_INBOX.mine" || len(m.Header) != 4 || m.Header.Get(topology.HeaderReply) != "1s" || m.Header.Get(nats.MsgIdHdr) != "1s" {
		t.Errorf("forwarded: %+v, %v", m, err)
	}
}
