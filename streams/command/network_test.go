package command

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// network is a connection without a server, in a bubble of synctest. It leads to the lanes' streams with their owner, and
// the micro service. The owner's rules are those of streamtest.Owner.
type network struct {
	mu      sync.Mutex
	fates   []fate // of the next messages
	always  fate   // of those after them
	down    bool
	mute    bool   // the state of the connection is not reported
	lose    string // the outcomes of messages with this text are lost
	times   uint64
	payload int64 // the server's max_payload
	status  chan nats.Status
	inbox   chan *nats.Msg

	sent    []*nats.Msg
	lines   []string // that the owner has read
	decided map[string]wire.Outcome
	numbers map[string]uint32
	held    []*nats.Msg
}

// fate is what becomes of a message. That of the zero fate arrives, and is acknowledged and answered once.
type fate struct {
	fails  error  // of its publication
	lost   bool   // it does not arrive
	noAck  bool   // the stream's acknowledgement is lost
	error  string // the stream's answer; nothing is stored
	alone  bool   // neither a stream nor a service is there
	silent bool   // the outcome is lost
	hold   bool   // the outcome is held back until release
	copies int    // more outcomes
	cut    bool   // the connection breaks, after that, and is made again
	reply  *nats.Msg
}

// answering is the fate of a message that is answered in a way of its own.
func answering(text string) fate { return fate{reply: &nats.Msg{Data: []byte(text)}} }

// failed is a micro error.
func failed(code, why string) fate {
	return fate{reply: &nats.Msg{Header: nats.Header{micro.ErrorCodeHeader: {code}, micro.ErrorHeader: {why}}}}
}

func newNetwork() *network {
	return &network{payload: 1 << 20, status: make(chan nats.Status, 8), inbox: make(chan *nats.Msg, 1<<14),
		decided: map[string]wire.Outcome{}, numbers: map[string]uint32{}}
}

func (n *network) PublishMsg(m *nats.Msg) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.always
	if len(n.fates) > 0 {
		f, n.fates = n.fates[0], n.fates[1:]
	}
	m = &nats.Msg{Subject: m.Subject, Reply: m.Reply, Header: maps.Clone(m.Header), Data: bytes.Clone(m.Data)}
	n.sent = append(n.sent, m)
	if !f.lost && !n.down {
		n.arrive(m, f)
	}
	if f.cut {
		n.reconnect()
	}
	return f.fails
}

// arrive is called with the mutex held, as are all below that are not of the interface.
func (n *network) arrive(m *nats.Msg, f fate) {
	to := m.Header.Get(topology.HeaderReply)
	direct := to == ""
	switch {
	case f.alone:
		n.answer(m.Reply, &nats.Msg{Header: nats.Header{"Status": {"503"}}})
		return
	case direct:
		to = m.Reply
	case f.error != "":
		n.answer(m.Reply, &nats.Msg{Data: []byte(f.error)})
		return
	case !f.noAck:
		n.answer(m.Reply, &nats.Msg{Data: []byte(`{"stream":"SCRIP_CMD_0","seq":1}`)})
	}
	var out []byte
	for line := range bytes.Lines(m.Data) {
		line = bytes.TrimSuffix(line, []byte{'\n'})
		n.lines = append(n.lines, string(line))
		out = append(append(out, n.decide(line)...), '\n')
	}
	reply := &nats.Msg{Subject: to, Data: out}
	if f.reply != nil {
		reply.Header, reply.Data = f.reply.Header, f.reply.Data
	}
	switch {
	case f.hold:
		n.held = append(n.held, reply)
	case !f.silent && (n.lose == "" || !bytes.Contains(m.Data, []byte(n.lose))):
		for range 1 + f.copies {
			n.answer(to, reply)
		}
	}
}

func (n *network) decide(line []byte) []byte {
	var cmd wire.Command
	if err := wire.ParseCommand(line, wire.Defaults{}, &cmd); err != nil {
		panic(err)
	}
	out, known := n.decided[cmd.ID]
	if out.Repeat = known; !known {
		out = wire.Outcome{ID: cmd.ID, Campaign: cmd.Campaign, CustomerID: cmd.CustomerID, OrderID: cmd.OrderID, Status: cmd.Type.Spec().Status}
		if cmd.Type == wire.Claim {
			n.numbers[cmd.Campaign]++
			out.N = n.numbers[cmd.Campaign]
		}
		n.decided[cmd.ID] = out
	}
	return out.AppendJSON(nil)
}

// answer delivers a message to the inbox.
func (n *network) answer(to string, m *nats.Msg) {
	if to != "" && !n.down {
		n.inbox <- &nats.Msg{Subject: to, Header: m.Header, Data: m.Data}
	}
}

func (n *network) report(s nats.Status) {
	if n.mute {
		return
	}
	select {
	case n.status <- s:
	default:
	}
}

func (n *network) disconnect() {
	n.down = true
	n.report(nats.RECONNECTING)
}

func (n *network) reconnect() {
	n.disconnect()
	n.down = false
	n.times++
	n.report(nats.CONNECTED)
}

// set changes the network.
func (n *network) set(change func(n *network)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

// release sends the outcomes that were held back; from now on none is.
func (n *network) release() {
	n.set(func(n *network) {
		n.always = fate{}
		for _, m := range n.held {
			n.answer(m.Subject, m)
		}
		n.held = nil
	})
}

// sizes returns how many lines each message had that was sent.
func (n *network) sizes() (sizes []int) {
	n.set(func(n *network) {
		for _, m := range n.sent {
			sizes = append(sizes, max(1, bytes.Count(m.Data, []byte{'\n'})))
		}
	})
	return sizes
}

// read returns the ids of the lines that the owner has read.
func (n *network) read() (ids []string) {
	n.set(func(n *network) {
		for _, line := range n.lines {
			_, rest, _ := strings.Cut(line, `"id":"`)
			id, _, _ := strings.Cut(rest, `"`)
			ids = append(ids, id)
		}
	})
	return ids
}

func (n *network) ForceReconnect() error { n.set((*network).reconnect); return nil }
func (n *network) Servers() []string     { return []string{"a", "b"} }
func (n *network) NewInbox() string      { return "_INBOX.test" }
func (n *network) MaxPayload() int64     { return n.payload }

func (n *network) IsConnected() (up bool) {
	n.set(func(n *network) { up = !n.down })
	return up
}

func (n *network) reconnects() (times uint64) {
	n.set(func(n *network) { times = n.times })
	return times
}

func (n *network) StatusChanged(...nats.Status) chan nats.Status { return n.status }
func (n *network) RemoveStatusListener(chan nats.Status)         {}

func (n *network) listen(subject string, receive func(*nats.Msg)) (stop func(), err error) {
	if subject != n.NewInbox()+".*" {
		return nil, errors.New("another inbox: " + subject)
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case m := <-n.inbox:
				receive(m)
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-ended }, nil
}

// repeated is as many fates of one kind.
func repeated(times int, f fate) []fate { return slices.Repeat([]fate{f}, times) }

// refusedBy is a stream's error.
func refusedBy(code int, description string) fate {
	return fate{error: fmt.Sprintf(`{"error":{"code":503,"err_code":%d,"description":%q}}`, code, description)}
}

var full = refusedBy(10077, "maximum bytes exceeded")

// soon is longer than a retry takes.
const soon = 4 * time.Second
