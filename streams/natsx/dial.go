package natsx

import (
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// PingEvery and PingsOut close a silent connection after (PingsOut+1)*PingEvery = 3 s. A server is then connected through
	// another node before the others take its lanes (lease.DefaultTTL), and before JetStream elects other leaders in place of
	// an unreachable node (4 to 9 s). A shorter time would also hit nodes that are only busy.
	PingEvery = time.Second
	PingsOut  = 2
	// WriteWait is how long a write may block. While it does nats.go sends no pings either, so that without this bound a
	// busy connection whose buffers are full would outlast an idle one by a minute.
	WriteWait = 3 * time.Second
	// GuestConnections and GuestSubscriptions are how many connections an account of users with keys may have on a cluster, and
	// how many subscriptions each of them.
	GuestConnections   = 4096
	GuestSubscriptions = 256
	// ReconnectWait is the pause after all nodes have been tried.
	ReconnectWait = 250 * time.Millisecond
	// ReconnectJitter is added to the pause, at random up to this, so that many clients do not reconnect at once.
	ReconnectJitter = 250 * time.Millisecond
)

// Options returns the options of a connection that reconnects for ever. Options of the caller are appended and override them.
func Options(name string) []nats.Option {
	return []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1),
		nats.PingInterval(PingEvery), nats.MaxPingsOutstanding(PingsOut), nats.FlusherTimeout(WriteWait),
		nats.ReconnectWait(ReconnectWait), nats.ReconnectJitter(ReconnectJitter, ReconnectJitter),
	}
}
