package streamtest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Owner answers the commands of all lanes of a log. It is a test double, for tests of clients: it reads the command streams of a real
// server and answers on Scrip-Reply, with faults where a test needs them.
//
// Its rules are minimal: the nth new id of a campaign gets coupon n, an id seen before gets the same answer with "repeat".
// It remembers its answers as a real lane does, so that a line sent again under the same id, by whatever way, must get the
// same answer.
type Owner struct {
	Log topology.Log

	nc *nats.Conn

	mu       sync.Mutex
	fault    OutcomeFault
	held     []nats.Msg
	decided  map[string]wire.Outcome // by lane and id
	numbers  map[string]uint32       // coupons by campaign
	messages int
	lines    int
	commands []wire.Command
}

// OutcomeFault decides what happens to an outcome message: how many times it is sent, 0 = lost. n counts command messages
// from 1.
type OutcomeFault func(n int, cmds []wire.Command) (times int)

// HoldBack as a number of times keeps the outcomes back until Release.
const HoldBack = -1

// StartOwner makes a log with that many lanes on nc's server and starts an owner for it, until the test ends.
func StartOwner(t testing.TB, nc *nats.Conn, spec topology.Spec) *Owner {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if spec.KeyFingerprint == "" {
		spec.KeyFingerprint = "0123456789abcdef"
	}
	log, err := topology.Ensure(ctx, js, spec)
	if err != nil {
		t.Fatalf("making the log: %v", err)
	}
	o := &Owner{Log: log, nc: nc, decided: make(map[string]wire.Outcome), numbers: make(map[string]uint32)}
	for lane := range log.Lanes {
		cons, err := js.OrderedConsumer(ctx, topology.CmdStream(lane), jetstream.OrderedConsumerConfig{})
		if err != nil {
			t.Fatalf("reading lane %d: %v", lane, err)
		}
		reading, err := cons.Consume(func(msg jetstream.Msg) { o.handle(lane, msg) })
		if err != nil {
			t.Fatalf("reading lane %d: %v", lane, err)
		}
		t.Cleanup(func() {
			reading.Stop()
			<-reading.Closed()
		})
	}
	return o
}

// SetFault sets the fault of later outcomes; nil = none.
func (o *Owner) SetFault(f OutcomeFault) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fault = f
}

// Release sends the outcomes held back.
func (o *Owner) Release(t testing.TB) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.held {
		if err := o.nc.PublishMsg(&o.held[i]); err != nil {
			t.Errorf("releasing an outcome: %v", err)
		}
	}
	o.held = nil
}

// Seen returns how many command messages and lines the owner has read.
func (o *Owner) Seen() (messages, lines int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.messages, o.lines
}

// Commands are the commands read, repeats included, in the order of their lanes.
func (o *Owner) Commands() []wire.Command {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]wire.Command(nil), o.commands...)
}

// Distinct returns how many different ids had an effect.
func (o *Owner) Distinct() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.decided)
}

func (o *Owner) handle(lane int, msg jetstream.Msg) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.messages++
	_, _, campaign, _ := topology.ParseCommandSubject(msg.Subject())
	var cmds []wire.Command
	var out []byte
	for line := range bytes.Lines(msg.Data()) {
		o.lines++
		line = bytes.TrimSuffix(line, []byte{'\n'})
		var cmd wire.Command
		err := wire.ParseCommand(line, wire.Defaults{Campaign: campaign}, &cmd)
		answer := o.decide(lane, &cmd, err)
		out = append(answer.AppendJSON(out), '\n')
		cmds = append(cmds, cmd)
	}
	o.commands = append(o.commands, cmds...)
	times := 1
	if o.fault != nil {
		times = o.fault(o.messages, cmds)
	}
	reply := nats.Msg{Subject: msg.Headers().Get(topology.HeaderReply), Data: out}
	if reply.Subject == "" {
		return
	}
	if times == HoldBack {
		o.held = append(o.held, reply)
		return
	}
	for range times {
		_ = o.nc.PublishMsg(&reply) // lost with the connection: the caller retries
	}
}

func (o *Owner) decide(lane int, cmd *wire.Command, err error) wire.Outcome {
	if err == nil && cmd.Campaign != "" && topology.LaneOf(cmd.Campaign, o.Log.Lanes) != lane {
		err = fmt.Errorf("campaign: %s lives on another lane than %d", cmd.Campaign, lane)
	}
	if err != nil {
		return wire.Outcome{ID: cmd.ID, Status: wire.StatusRefused, Refusal: wire.Invalid, Message: err.Error()}
	}
	if _, _, form := code.New([32]byte{}).Decode(cmd.Code); cmd.Code != "" && cmd.Campaign == "" && !form {
		return wire.Outcome{ID: cmd.ID, Status: wire.StatusRefused, Refusal: wire.CodeNotFound, Message: wire.NoForm}
	}
	key := fmt.Sprintf("%d %s", lane, cmd.ID)
	if was, ok := o.decided[key]; ok {
		was.Repeat = true
		return was
	}
	out := wire.Outcome{ID: cmd.ID, Campaign: cmd.Campaign, CustomerID: cmd.CustomerID, OrderID: cmd.OrderID, Status: cmd.Type.Spec().Status}
	switch cmd.Type {
	case wire.Claim:
		o.numbers[cmd.Campaign]++
		out.N = o.numbers[cmd.Campaign]
		out.Code = fmt.Sprintf("CODE-%d", out.N)
	case wire.ImportCodes:
		out.Count = uint64(len(cmd.Codes))
	default:
		out.Code = cmd.Code
	}
	o.decided[key] = out
	return out
}
