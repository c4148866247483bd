package dial_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/dial"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestASilentConnectionIsGivenUp cuts a connection without a FIN. Both ends must notice, in seconds and not in minutes, and the
// client must be back when the network is.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	t.Parallel()
	s := streamtest.Start(t)
	link := streamtest.NewLink(t, strings.TrimPrefix(s.ClientURL(), "nats://"))
	nc, err := nats.Connect("nats://"+link.Addr(), dial.Options("test")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	id, err := nc.GetClientID()
	if err != nil {
		t.Fatal(err)
	}
	link.Cut(true, true)
	streamtest.Eventually(t, "the client gives the connection up", func() bool { return !nc.IsConnected() })
	streamtest.Eventually(t, "the server gives the client up", func() bool { return s.Nats().GetClient(id) == nil })
	link.Heal()
	streamtest.Eventually(t, "the client is back", nc.IsConnected)
}

// TestAFullConnectionIsGivenUp: while a write blocks nats.go sends no pings; it must not outlast an idle connection by a
// minute.
func TestAFullConnectionIsGivenUp(t *testing.T) {
	t.Parallel()
	s := streamtest.Start(t)
	link := streamtest.NewLink(t, strings.TrimPrefix(s.ClientURL(), "nats://"))
	nc, err := nats.Connect("nats://"+link.Addr(), dial.Options("test")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	status := nc.StatusChanged(nats.RECONNECTING)
	link.Cut(true, true)
	full := make(chan struct{})
	go func() { // blocks when the socket's buffers are full
		defer close(full)
		data := make([]byte, 512<<10)
		for range 200 {
			if nc.Publish("somewhere", data) != nil {
				return
			}
		}
	}()
	select {
	case <-status:
	case <-time.After(time.Minute):
		t.Error("the client did not give the connection up within a minute")
	}
	link.Heal()
	streamtest.Eventually(t, "the client is back", nc.IsConnected)
	<-full
}
