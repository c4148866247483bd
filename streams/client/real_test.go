package client_test

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/service"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// serve runs what `scrip serve` runs for producers: an embedded NATS server, real lanes and the micro service. It
// is beside the example so that the example shows nothing but a producer.
func serve() (url string, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "scrip-client")
	if err != nil {
		return "", nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	const lanes = 2
	server, err := natsd.Start(natsd.Options{StoreDir: dir, Listen: "127.0.0.1:0", Sync: natsd.SyncInterval, Lanes: lanes, Logger: quiet})
	if err != nil {
		return "", nil, err
	}
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		return "", nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return "", nil, err
	}
	key := [32]byte{1, 2, 3}
	log, err := topology.Ensure(context.Background(), js, topology.Spec{Lanes: lanes, KeyFingerprint: code.Fingerprint(key)})
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	for i := range lanes {
		l := lane.New(lane.Options{JetStream: js, Log: log, Lane: i, Key: key, Logger: quiet})
		g.Go(func() error { return l.Run(ctx) })
	}
	s := service.New(nc, log, code.New(key), service.Options{Logger: quiet})
	g.Go(func() error { return s.Run(ctx) })
	return server.ClientURL(), func() error {
		cancel()
		err := g.Wait()
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		nc.Close()
		server.Shutdown()
		return errors.Join(err, os.RemoveAll(dir))
	}, nil
}
