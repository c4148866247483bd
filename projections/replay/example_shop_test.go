package replay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// channelOf reads the attribute that this shop gives with its claims.
func channelOf(attributes []byte) string {
	var a struct{ Channel string }
	if json.Unmarshal(attributes, &a) != nil || a.Channel == "" {
		return "unknown"
	}
	return a.Channel
}

// shop is the environment of the example: a NATS server, a database, and a log with some claims in it, decided by a
// lane of the domain.
func shop() (js jetstream.JetStream, postgresURL string, stop func()) {
	t := &stage{}
	js = streamtest.Start(t).JetStream(t)
	log, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, KeyFingerprint: "test"})
	if err != nil {
		t.Fatal(err)
	}
	step := domain.NewStep(domain.NewLane(domain.LaneOptions{Lanes: log.Lanes}))
	at := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	commands := `{"id":"1","type":"create_campaign","campaign":"summer","codes":100}
{"id":"2","type":"claim","campaign":"summer","customer_id":"ann","attributes":{"channel":"app"}}
{"id":"3","type":"claim","campaign":"summer","customer_id":"bob","attributes":{"channel":"web"}}
{"id":"4","type":"claim","campaign":"summer","customer_id":"cid","attributes":{"channel":"app"}}
{"id":"5","type":"claim","campaign":"summer","customer_id":"dee"}
{"id":"6","type":"claim","campaign":"summer","customer_id":"eve","attributes":{"channel":"app"}}
{"id":"7","type":"claim","campaign":"summer","customer_id":"flo","attributes":{"channel":"web"}}
`
	step.Add(domain.Message{Sequence: 1, Scope: wire.ScopeTrusted, Payload: []byte(commands)}, wire.At(at), nil)
	step.Close()
	header := eventlog.Header{Commands: [2]uint64{1, 1}, CommandTime: at, LaneTime: at, Owner: "example"}
	if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: topology.Evt(0), Header: streamtest.Sealed(header.Encode()), Data: step.Events}); err != nil {
		t.Fatal(err)
	}
	return js, projtest.URL(t), t.strike
}

// stage lets helpers of tests serve an example, which has no testing.TB.
type stage struct {
	testing.TB // nil: what is not below is not used
	cleanups   []func()
}

func (s *stage) Helper()                   {}
func (s *stage) Cleanup(f func())          { s.cleanups = append(s.cleanups, f) }
func (s *stage) Errorf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (s *stage) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (s *stage) Fatal(a ...any)            { panic(fmt.Sprint(a...)) }

func (s *stage) strike() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
}

func (s *stage) Context() context.Context { return context.Background() }
func (s *stage) Output() io.Writer        { return io.Discard }
func (s *stage) TempDir() string {
	dir, err := os.MkdirTemp("", "scrip-example-")
	if err != nil {
		panic(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
