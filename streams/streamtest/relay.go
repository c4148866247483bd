package streamtest

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// relayPrefix is the API prefix that a relay listens on.
const relayPrefix = "RELAY.API"

// NeverAnswered is what an answer function returns to leave a request without an answer.
var NeverAnswered = []byte{}

// Unavailable is the answer of a stream that elects a leader.
var Unavailable = []byte(`{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`)

// Relay is a proxy between a client and the JetStream API, with which a test can answer in a server's place.
type Relay struct {
	// JetStream sends its API requests through the relay.
	JetStream jetstream.JetStream

	mu     sync.Mutex
	answer func(request string, real func() []byte) []byte
}

// NewRelay connects to the server, or to any node of a cluster, until the test ends. At first it forwards all requests.
func NewRelay(t testing.TB, to interface {
	Conn(t testing.TB, opts ...nats.Option) *nats.Conn
}) *Relay {
	t.Helper()
	nc, y := to.Conn(t), &Relay{}
	_, err := nc.Subscribe(relayPrefix+".>", func(m *nats.Msg) {
		request := strings.TrimPrefix(m.Subject, relayPrefix+".")
		y.mu.Lock()
		answer := y.answer
		y.mu.Unlock()
		if answer != nil {
			instead := answer(request, func() []byte {
				reply, err := nc.Request(jetstream.DefaultAPIPrefix+request, m.Data, 10*time.Second)
				if err != nil {
					return nil
				}
				return reply.Data
			})
			if len(instead) > 0 {
				_ = m.Respond(instead)
			}
			if instead != nil {
				return
			}
		}
		_ = nc.PublishMsg(&nats.Msg{Subject: jetstream.DefaultAPIPrefix + request, Reply: m.Reply, Header: m.Header, Data: m.Data})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if y.JetStream, err = jetstream.NewWithAPIPrefix(to.Conn(t), relayPrefix); err != nil {
		t.Fatal(err)
	}
	return y
}

// Answer sets the function that answers requests from now on. request is what follows the API prefix, such as
// "STREAM.INFO.SCRIP_EVT_0"; real fetches the server's own answer. A nil result forwards the request.
func (y *Relay) Answer(f func(request string, real func() []byte) []byte) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.answer = f
}

// Behind returns a STREAM.INFO answer of a replicated stream from a copy that lags by so many messages. An empty leader makes
// it that of a follower while there is no leader; with a name it is that of a leader that has been replaced and does not know
// it yet.
func Behind(t testing.TB, info []byte, by uint64, leader string) []byte {
	t.Helper()
	var m map[string]json.RawMessage
	var state, config map[string]any
	var last struct {
		Last uint64 `json:"last_seq"`
	}
	err := json.Unmarshal(info, &m)
	for _, into := range []any{&state, &last} {
		if err == nil {
			err = json.Unmarshal(m["state"], into)
		}
	}
	if err == nil {
		err = json.Unmarshal(m["config"], &config)
	}
	if err != nil {
		t.Errorf("STREAM.INFO answer %s: %v", info, err)
		return nil
	}
	state["last_seq"], config["num_replicas"] = last.Last-by, 3
	for name, v := range map[string]any{"state": state, "config": config, "cluster": map[string]string{"name": "test", "raft_group": "S-R3F-test", "leader": leader}} {
		if m[name], err = json.Marshal(v); err != nil {
			t.Error(err)
		}
	}
	out, err := json.Marshal(m)
	if err != nil {
		t.Error(err)
	}
	return out
}
