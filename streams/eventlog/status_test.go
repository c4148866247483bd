package eventlog_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// sendBlock publishes a message with a header block as it is; client libraries would not encode most of these.
func sendBlock(t *testing.T, addr, subject, block, payload string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	if _, err := in.ReadString('\n'); err != nil { // INFO
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true}\r\nHPUB %s %d %d\r\n%s%s\r\nPING\r\n",
		subject, len(block), len(block)+len(payload), block, payload)
	for {
		line, err := in.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "-ERR") {
			t.Fatalf("publishing the block %q: %q %v", block, line, err)
		}
		if strings.HasPrefix(line, "PONG") {
			return
		}
	}
}

// Any producer can publish what nats.go takes for a status of the server and does not deliver, or headers that cannot be
// decoded. Neither stops a feed that runs, or one that is opened after it.
func TestMessagesThatLookLikeAStatus(t *testing.T) {
	eventlog.LookEvery(t, 50*time.Millisecond)
	s := streamtest.Start(t)
	js := s.JetStream(t)
	newLog(t, js, 1)
	addr := strings.TrimPrefix(s.ClientURL(), "nats://")
	blocks := []string{
		"NATS/1.0\r\nStatus: 100\r\n\r\n",
		"NATS/1.0\r\nStatus: 404\r\nDescription: No Messages\r\n\r\n",
		"NATS/1.0\r\nStatus: 408\r\nNats-Pending-Messages: 7\r\nNats-Pending-Bytes: 7\r\n\r\n",
		"NATS/1.0\r\nStatus: 409\r\nDescription: Consumer Deleted\r\n\r\n",
		"NATS/1.0\r\nStatus: 409\r\nDescription: Message Size Exceeds MaxBytes\r\n\r\n",
		"NATS/1.0\r\nStatus: 423\r\n\r\n",
		"NATS/1.0\r\nStatus: 503\r\n\r\n",
		"NATS/1.0\r\nX\r\n\r\n",
		"NATS/1.0\r\n: \r\n\r\n",
		"NATS/1.0\r\nA: b",
	}
	commands := eventlog.Commands(js, lane)
	running, err := commands.OpenFeed(t.Context(), 0, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	for i, block := range blocks {
		sequence := uint64(2*i + 1)
		sendBlock(t, addr, topology.LaneCmd(lane), block, "")
		if i%2 == 0 { // as the newest message, and in front of another one
			delivers(t, running, sequence)
		}
		sendBlock(t, addr, topology.LaneCmd(lane), "NATS/1.0\r\n\r\n", "{}")
		if i%2 == 1 {
			delivers(t, running, sequence)
		}
		delivers(t, running, sequence+1)
		later, err := commands.OpenFeed(within(t), sequence, quiet)
		if err != nil {
			t.Fatalf("after %q: %v", block, err)
		}
		delivers(t, later, sequence+1)
		later.Close()
	}
	whole, err := commands.OpenFeed(t.Context(), 0, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	for n := range uint64(2 * len(blocks)) {
		delivers(t, whole, n+1)
	}
	spanned := uint64(0)
	streamtest.Must(t, commands.Span(within(t), 1, uint64(2*len(blocks)), func(raw *eventlog.Raw) {
		if spanned++; raw.Sequence != spanned {
			t.Errorf("a span has %d after %d", raw.Sequence, spanned-1)
		}
	}))
	bounds, err := commands.Bounds(t.Context())
	if err != nil || bounds.Last != uint64(2*len(blocks)) || spanned != bounds.Last {
		t.Errorf("%+v %v", bounds, err)
	}
}
