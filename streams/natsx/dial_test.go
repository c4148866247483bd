package natsx_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestASilentConnectionIsGivenUp cuts a connection without a FIN. Both ends must notice, in seconds and not in minutes, and the
// client must be back when the network is. While a write blocks nats.go sends no pings; such a connection must not outlast an
// idle one by a minute.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	for name, full := range map[string]bool{"Idle": false, "Full": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := streamtest.Start(t)
			link := streamtest.NewLink(t, strings.TrimPrefix(s.ClientURL(), "nats://"))
			nc, err := nats.Connect("nats://"+link.Addr(), natsx.Options("test")...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			id, err := nc.GetClientID()
			if err != nil {
				t.Fatal(err)
			}
			lost, back := nc.StatusChanged(nats.RECONNECTING), nc.StatusChanged(nats.CONNECTED)
			await := func(status <-chan nats.Status) {
				t.Helper()
				select {
				case <-status:
				case <-time.After(time.Minute):
					t.Errorf("after a minute the client is %s", nc.Status())
				}
			}
			link.Cut(true, true)
			written := make(chan struct{})
			go func() { // blocks when the socket's buffers are full
				defer close(written)
				for i := 0; full && i < 200 && nc.Publish("somewhere", make([]byte, 512<<10)) == nil; i++ {
				}
			}()
			await(lost)
			streamtest.Eventually(t, "the server gives the client up", func() bool { return s.Nats().GetClient(id) == nil })
			link.Heal()
			await(back)
			<-written
		})
	}
}
