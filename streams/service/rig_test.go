package service

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

const lanes = 2

// rig is a server, an owner of its lanes, and the service under test. conn is a requester's connection.
type rig struct {
	server *streamtest.Server
	owner  *streamtest.Owner
	conn   *nats.Conn
	codec  *code.Codec
}

func newRig(t *testing.T) *rig {
	t.Helper()
	server := streamtest.Start(t)
	r := &rig{
		server: server,
		owner:  streamtest.StartOwner(t, server.Conn(t), topology.Spec{Lanes: lanes}),
		conn:   server.Conn(t),
		codec:  code.New([32]byte{1, 2, 3}),
	}
	return r
}

// serve runs one more server of the service and returns how to stop it.
func (r *rig) serve(t *testing.T, opts Options) (*Service, func()) {
	t.Helper()
	if opts.Batch.RetryAfter == 0 {
		opts.Batch = command.Options{RetryAfter: 100 * time.Millisecond}
	}
	opts.Logger = streamtest.Logger(t)
	s := New(r.server.Conn(t), r.owner.Log, r.codec, opts)
	s.signals.stopped.Watch()
	stop := streamtest.Background(t, s.Run)
	<-s.Ready()
	return s, stop
}

// request sends a request and expects a reply of any kind. One with the header of NATS goes where NATS delivers it.
func (r *rig) request(t testing.TB, subject, body string, header ...string) *nats.Msg {
	t.Helper()
	m := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{}}
	for i := 0; i+1 < len(header); i += 2 {
		m.Header.Set(header[i], header[i+1])
	}
	if from, err := access.ParseRequester(m.Header.Get(access.HeaderRequestInfo)); err == nil {
		m.Subject = access.GuestSubject(from.Account, strings.TrimPrefix(subject, "scrip."))
	}
	reply, err := r.conn.RequestMsg(m, 20*time.Second)
	if err != nil {
		t.Fatalf("%s %s: %v", subject, body, err)
	}
	return reply
}

// outcome sends a request and expects an ordinary reply that is an outcome.
func (r *rig) outcome(t testing.TB, subject, body string, header ...string) wire.Outcome {
	t.Helper()
	reply := r.request(t, subject, body, header...)
	if code := reply.Header.Get(micro.ErrorCodeHeader); code != "" {
		t.Fatalf("%s %s: error %s: %s", subject, body, code, reply.Header.Get(micro.ErrorHeader))
	}
	out, err := wire.ParseOutcome(reply.Data)
	if err != nil {
		t.Fatalf("%s %s: %v in %s", subject, body, err, reply.Data)
	}
	return out
}

// fails sends a request and expects a micro error 503; it returns its description and body.
func (r *rig) fails(t testing.TB, subject, body string, header ...string) (string, map[string]string) {
	t.Helper()
	reply := r.request(t, subject, body, header...)
	if code := reply.Header.Get(micro.ErrorCodeHeader); code != "503" {
		t.Fatalf("%s %s: error code %q and %s, expected 503", subject, body, code, reply.Data)
	}
	fields := make(map[string]string)
	if len(reply.Data) > 0 {
		if err := json.Unmarshal(reply.Data, &fields); err != nil {
			t.Fatalf("the error's body %s: %v", reply.Data, err)
		}
	}
	return reply.Header.Get(micro.ErrorHeader), fields
}

// lane answers the queries of one lane, until the test ends.
func (r *rig) lane(t *testing.T, lane int, answer func(query) string) {
	t.Helper()
	nc := r.server.Conn(t)
	_, err := nc.Subscribe(topology.LaneQuery(lane), func(m *nats.Msg) {
		var q query
		if err := json.Unmarshal(m.Data, &q); err != nil {
			t.Errorf("the lane received %s: %v", m.Data, err)
		}
		if reply := answer(q); reply != "" {
			_ = nc.Publish(m.Reply, []byte(reply))
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	streamtest.Must(t, err)
}

// sent returns the lane of each command that was sent, by its id, and the person who sent it.
func (r *rig) sent(t *testing.T) (on map[string]int, by map[string]string) {
	t.Helper()
	on, by = map[string]int{}, map[string]string{}
	for lane := range lanes {
		stream := eventlog.Commands(r.server.JetStream(t), lane)
		bounds, err := stream.Bounds(t.Context())
		streamtest.Must(t, err)
		for seq := max(bounds.First, 1); seq <= bounds.Last; seq++ {
			m, err := stream.Get(t.Context(), seq)
			streamtest.Must(t, err)
			for line := range bytes.Lines(m.Data) {
				var c wire.Command
				if err := wire.ParseCommand(bytes.TrimSuffix(line, []byte{'\n'}), wire.Defaults{}, &c); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				on[c.ID], by[c.ID] = lane, m.Header.Get(topology.HeaderBy)
			}
		}
	}
	return on, by
}

func (r *rig) generated(campaign, n uint32) string {
	return string(r.codec.AppendCode(nil, "", campaign, n))
}

func has(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q does not contain %q", text, p)
		}
	}
}
