package service

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// forwarder runs one until the test ends.
func forwarder(t *testing.T, nc *nats.Conn) *Forwarder {
	t.Helper()
	f := NewForwarder(nc, lanes, streamtest.Logger(t))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	streamtest.Eventually(t, "it is subscribed", func() bool { return nc.NumSubscriptions() >= 2 })
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTheForwarderStandsInForTheMapping(t *testing.T) {
	server := streamtest.Start(t)
	owner := streamtest.StartOwner(t, server.Conn(t), topology.Spec{Lanes: lanes})
	one := forwarder(t, server.Conn(t))
	two := forwarder(t, server.Conn(t)) // a second server shares, it does not double
	conn := server.Conn(t)

	outcomes := make(chan *nats.Msg, 16)
	inbox := conn.NewInbox()
	if _, err := conn.ChanSubscribe(inbox, outcomes); err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct {
		subject string
		cmd     wire.Command
		status  string
	}{
		{topology.CmdSubject("summer"), wire.Command{Type: wire.Claim, CustomerID: "c"}, wire.StatusClaimed},
		{topology.CmdSubject("winter"), wire.Command{Type: wire.Claim, CustomerID: "c"}, wire.StatusClaimed},
		{topology.AdminSubject("summer"), wire.Command{Type: wire.PauseCampaign}, wire.StatusPaused},
		// Only a lane can report to the producer that this is no name.
		{topology.CmdSubject("sum$mer"), wire.Command{Type: wire.Claim, CustomerID: "c"}, wire.StatusRefused},
	} {
		test.cmd.ID = test.subject
		ack, err := conn.RequestMsg(&nats.Msg{
			Subject: test.subject, Data: test.cmd.AppendJSON(nil),
			Header: nats.Header{topology.HeaderReply: []string{inbox}, "Other": []string{"kept"}},
		}, 10*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", test.subject, err)
		}
		has(t, string(ack.Data), `"stream":"SCRIP_CMD_`)
		select {
		case m := <-outcomes:
			out, err := wire.ParseOutcome([]byte(m.Data[:len(m.Data)-1]))
			if err != nil || out.ID != test.cmd.ID || out.Status != test.status {
				t.Errorf("%s was answered %s (%v)", test.subject, m.Data, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: no outcome", test.subject)
		}
		if messages, _ := owner.Seen(); messages != i+1 {
			t.Errorf("after %d messages the lanes have %d", i+1, messages)
		}
	}
	// A message is counted after its publication, which may answer its producer first.
	streamtest.Eventually(t, "4 messages are counted", func() bool { return one.Forwarded()+two.Forwarded() >= 4 })
	if n := one.Forwarded() + two.Forwarded(); n != 4 {
		t.Errorf("%d messages were forwarded, expected 4", n)
	}
}

func TestWhereTheMappingExistsTheForwarderHasNothingToDo(t *testing.T) {
	server := streamtest.Start(t, streamtest.Lanes(lanes))
	owner := streamtest.StartOwner(t, server.Conn(t), topology.Spec{Lanes: lanes})
	f := forwarder(t, server.Conn(t))
	conn := server.Conn(t)
	cmd := wire.Command{Type: wire.Claim, ID: "mapped", CustomerID: "c"}
	if _, err := conn.Request(topology.CmdSubject("summer"), cmd.AppendJSON(nil), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	streamtest.Eventually(t, "the lane has it", func() bool { n, _ := owner.Seen(); return n == 1 })
	if n := f.Forwarded(); n != 0 {
		t.Errorf("%d messages were forwarded beside the mapping", n)
	}
}
