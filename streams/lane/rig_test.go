package lane_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// rig is a real server with a log of one lane, and the owner of that lane.
type rig struct {
	t   *testing.T
	srv *streamtest.Server
	nc  *nats.Conn
	js  jetstream.JetStream
	log topology.Log
}

var testKey = [32]byte{1, 2, 3}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOf(t, 0)
}

// newRigOf bounds the command stream; 0 = as usual.
func newRigOf(t *testing.T, cmdMaxBytes int64) *rig {
	t.Helper()
	r := &rig{t: t, srv: streamtest.Start(t, streamtest.Lanes(1))}
	r.nc = r.srv.Conn(t)
	var err error
	if r.js, err = jetstream.New(r.nc); err != nil {
		t.Fatal(err)
	}
	if r.log, err = topology.Ensure(t.Context(), r.js, topology.Spec{Lanes: 1, KeyFingerprint: "test", CmdMaxBytes: cmdMaxBytes}); err != nil {
		t.Fatal(err)
	}
	return r
}

// running is an owner at work.
type running struct {
	*lane.Lane
	cancel context.CancelCauseFunc
	done   chan error
}

func (r *rig) options() lane.Options {
	return lane.Options{JetStream: r.js, Log: r.log, Lane: 0, Key: testKey, Logger: streamtest.Logger(r.t)}
}

// start runs an owner until the test ends or stop is called.
func (r *rig) start(o lane.Options) *running {
	r.t.Helper()
	return r.run(lane.New(o))
}

// run is start for a lane that was made before.
func (r *rig) run(l *lane.Lane) *running {
	r.t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	run := &running{Lane: l, cancel: cancel, done: make(chan error, 1)}
	run.Watched()
	go func() { run.done <- run.Run(ctx) }()
	r.t.Cleanup(func() { run.stop() })
	return run
}

func (r *running) stop() error {
	r.cancel(nil)
	return r.wait()
}

// wait waits for an owner that ends by itself.
func (r *running) wait() error {
	err := <-r.done
	r.done <- err
	return err
}

// reports waits for a status.
func (r *running) reports(t *testing.T, state lane.State, text string) lane.Status {
	t.Helper()
	return r.Signals().Reported.WaitFor(t, func(s lane.Status) bool { return s.State == state && strings.Contains(s.Error, text) })
}

// up waits until the owner decides.
func (r *rig) up(run *running) *running {
	r.t.Helper()
	s := run.Signals().Reported.WaitFor(r.t, func(s lane.Status) bool { return s.State == lane.StateOwner || s.State == lane.StateStopped })
	if s.State == lane.StateStopped {
		r.t.Fatalf("the lane stopped: %s", s.Error)
	}
	return run
}

// send publishes one command message and returns the PubAck and where its answer will come.
func (r *rig) send(subject string, payload string) (*jetstream.PubAck, *nats.Subscription) {
	r.t.Helper()
	inbox := r.nc.NewRespInbox()
	sub, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		r.t.Fatal(err)
	}
	ack, err := r.js.PublishMsg(r.t.Context(), &nats.Msg{Subject: subject, Data: []byte(payload), Header: nats.Header{topology.HeaderReply: {inbox}}})
	if err != nil {
		r.t.Fatal(err)
	}
	return ack, sub
}

// answers reads one outcome message.
func (r *rig) answers(sub *nats.Subscription) []wire.Outcome {
	r.t.Helper()
	msg, err := sub.NextMsg(3 * time.Minute)
	if err != nil {
		r.t.Fatalf("no outcome: %v", err)
	}
	var outs []wire.Outcome
	for _, line := range bytes.Split(bytes.TrimSuffix(msg.Data, []byte("\n")), []byte("\n")) {
		out, err := wire.ParseOutcome(line)
		if err != nil {
			r.t.Fatalf("outcome %q: %v", line, err)
		}
		outs = append(outs, out)
	}
	return outs
}

// request sends lines over the trusted subject and returns their outcomes.
func (r *rig) request(lines ...string) []wire.Outcome {
	r.t.Helper()
	_, sub := r.send(topology.LaneCmd(0), strings.Join(lines, "\n"))
	return r.answers(sub)
}

// one sends one line.
func (r *rig) one(line string) wire.Outcome {
	r.t.Helper()
	return r.request(line)[0]
}

func create(campaign string, codes int, more string) string {
	return fmt.Sprintf(`{"id":"create-%s","type":"create_campaign","campaign":"%s","codes":%d%s}`, campaign, campaign, codes, more)
}

func claim(campaign, customer string) string {
	return fmt.Sprintf(`{"id":"claim-%s","type":"claim","campaign":"%s","customer_id":"%s"}`, customer, campaign, customer)
}

func redeem(code, order string) string {
	return fmt.Sprintf(`{"id":"redeem-%s-%s","type":"redeem","code":"%s","order_id":"%s"}`, code, order, code, order)
}

// events reads the whole event stream and checks the chain of headers on the way.
func (r *rig) events() (messages []eventlog.Message, events []wire.Event) {
	r.t.Helper()
	reader, err := eventlog.Events(r.js, 0).Open(r.t.Context(), r.log.UUID, eventlog.Position{Log: r.log.UUID}, eventlog.ReaderOptions{Logger: streamtest.Logger(r.t)})
	if err != nil {
		r.t.Fatal(err)
	}
	defer reader.Close()
	err = reader.CatchUp(r.t.Context(), func(batch []eventlog.Message) error {
		for _, m := range batch {
			if n := len(messages); n > 0 && !messages[n-1].Follows(&m) {
				return fmt.Errorf("message %d does not follow %d", m.Sequence, messages[n-1].Sequence)
			}
			messages = append(messages, m)
			for _, line := range eventlog.Lines(m.Payload) {
				var ev wire.Event
				if err := wire.ParseEvent(line, &ev); err != nil {
					return err
				}
				events = append(events, ev)
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return messages, events
}

// query decodes an answer, and returns its size.
func (r *rig) query(request map[string]any, into any) int {
	r.t.Helper()
	request["wait_ms"] = time.Minute.Milliseconds()
	data, _ := json.Marshal(request)
	msg, err := r.nc.Request(topology.LaneQuery(0), data, time.Minute)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := json.Unmarshal(msg.Data, into); err != nil {
		r.t.Fatalf("%.200q: %v", msg.Data, err)
	}
	return len(msg.Data)
}
