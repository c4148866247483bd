package main

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/streams/dial"
)

// connectWait is how long connecting to a server may take.
const connectWait = 5 * time.Second

// connect finds the server and connects to it. Once connected it waits for the server whenever that is away.
func (m *Main) connect() (jetstream.JetStream, error) {
	server, err := datadir.Locate(m.nats, m.data)
	if err != nil {
		return nil, err
	}
	log := m.opts.Logger
	nc, err := nats.Connect(server.NATSURL, append(dial.Options("scrip push sender "+m.name), nats.Timeout(connectWait),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // not at our own end
				log.Warn("the server is away; waiting for it", "err", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("the server is back", "url", nc.ConnectedUrlRedacted()) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("from NATS", "err", err) }))...)
	if err != nil {
		return nil, datadir.NotConnected(err, m.data)
	}
	return jetstream.New(nc)
}
