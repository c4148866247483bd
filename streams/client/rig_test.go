package client_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/command"
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
