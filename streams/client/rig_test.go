package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/service"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

// rig is a server, an owner of its lanes, the micro service, and a client.
type rig struct {
	*client.Client
	server *streamtest.Server
	owner  *streamtest.Owner
	codec  *code.Codec
	stop   func() // ends the service
}

const quick = 100 * time.Millisecond

func newRig(t *testing.T, opts client.Options) *rig {
	t.Helper()
	server := streamtest.Start(t)
	r := &rig{
		server: server,
		owner:  streamtest.StartOwner(t, server.Conn(t), topology.Spec{Lanes: 2}),
		codec:  newCodec(),
	}
	r.serve(t, server.Conn(t), r.owner.Log)
	if opts.RetryAfter == 0 {
		opts.RetryAfter = quick
	}
	r.Client = client.New(server.Conn(t), opts)
	t.Cleanup(r.Close)
	return r
}

// serve runs the micro service.
func (r *rig) serve(t *testing.T, nc *nats.Conn, log topology.Log) {
	t.Helper()
	svc := service.New(nc, log, r.codec, service.Options{
		Batch: command.Options{RetryAfter: quick}, Logger: streamtest.Logger(t),
	})
	r.stop = streamtest.Background(t, svc.Run)
}

func (r *rig) generated(campaign, n uint32) string {
	return string(r.codec.AppendCode(nil, "", campaign, n))
}

// lanes answers queries on both lanes.
func (r *rig) lanes(t *testing.T, answer func(lane int, query map[string]any) string) {
	t.Helper()
	nc := r.server.Conn(t)
	for lane, subject := range []string{"scrip.lane.0.query", "scrip.lane.1.query"} {
		_, err := nc.Subscribe(subject, func(m *nats.Msg) {
			var q map[string]any
			if err := json.Unmarshal(m.Data, &q); err != nil {
				t.Errorf("the lane received %s: %v", m.Data, err)
			}
			_ = nc.Publish(m.Reply, []byte(answer(lane, q)))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// arrivals reports the ids of the lines that arrive from now on; their outcomes are held back.
func (r *rig) arrivals() <-chan string {
	ids := make(chan string, 1<<14)
	r.owner.SetFault(func(_ int, cmds []wire.Command) int {
		for _, cmd := range cmds {
			ids <- cmd.ID
		}
		return streamtest.HoldBack
	})
	return ids
}

// within is a context for what is expected to work.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

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
