package main

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
)

// connectWait is how long connecting to a server may take.
const connectWait = 5 * time.Second

// find says where the server is: --nats, else scrip.json.
func (m *Main) find() (string, error) {
	if m.nats != "" {
		return m.nats, nil
	}
	server, err := datadir.Find(m.data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("no server runs on the data directory %s; start one with `scrip serve`, or name one with --data DIR or --nats URL", m.data)
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("where the server is may not be read (%w); ask as the user who runs it, or name it with --nats URL", err)
	case err != nil:
		return "", err
	case !server.Alive():
		return "", fmt.Errorf("the server on %s is gone (process %d, it did not stop by itself); start it again with `scrip serve`", m.data, server.PID)
	}
	return server.NATSURL, nil
}

// connect finds the server and connects to it. Once connected it waits for the server whenever that is away.
func (m *Main) connect() (jetstream.JetStream, error) {
	url, err := m.find()
	if err != nil {
		return nil, err
	}
	log := m.opts.Logger
	nc, err := nats.Connect(url, nats.Name("scrip push sender "+m.name), nats.MaxReconnects(-1), nats.Timeout(connectWait),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // not at our own end
				log.Warn("the server is away; waiting for it", "err", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("the server is back", "url", nc.ConnectedUrlRedacted()) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("from NATS", "err", err) }))
	if err != nil {
		hint := "is `scrip serve` running there?"
		if errors.Is(err, nats.ErrAuthorization) {
			hint = "give the credentials in the URL: nats://USER:PASSWORD@HOST:PORT"
		}
		return nil, fmt.Errorf("connecting to the server: %w; %s", err, hint)
	}
	return jetstream.New(nc)
}
