package sim

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// op is a command of a client. It is sent, and sent again, with the same bytes.
type op struct {
	id, line string
	kind     wire.CommandType
	campaign string
	customer string
	code     string
	order    string
	due      bool // the scheduler's: no client waits for an answer

	answer *wire.Outcome // the first accepted one
	since  uint64        // the first command of it that was accepted
	heard  bool          // any answer arrived
}

// instance is a command message as it was stored: an op may be stored several times.
type instance struct {
	ops     []*op
	seq     uint64
	stored  time.Time
	gone    bool // with the tail of the store, or with the one that was replaced
	refused map[*op]bool
}

// held is a code of an answer.
type held struct{ campaign, code string }

// crowd is all clients and the scheduler.
type crowd struct {
	w         *world
	ops       []*op
	codes     []held
	campaigns []string
	instances []*instance // by number, which is in the inbox
}

func newCrowd(w *world) *crowd {
	c := &crowd{w: w}
	for i := range 3 {
		name := fmt.Sprint("c", i)
		c.campaigns = append(c.campaigns, name)
		end := fmt.Sprintf(`"expires_at":"%s"`, w.Now.Add(time.Duration(2+w.Rng.IntN(20))*time.Second).Format(time.RFC3339))
		if w.Rng.IntN(2) == 0 {
			end = fmt.Sprintf(`"valid_for":"%ds"`, 1+w.Rng.IntN(6))
		}
		o := &op{kind: wire.CreateCampaign, campaign: name}
		c.add(o, `"codes":%d,"per_customer":%d,"max_redemptions":%d,%s`, 1+w.Rng.IntN(12), w.Rng.IntN(3), 1+w.Rng.IntN(2), end)
	}
	return c
}

// add makes the op's line.
func (c *crowd) add(o *op, format string, args ...any) {
	o.id = fmt.Sprint("id", len(c.ops))
	o.line = fmt.Sprintf(`{"id":"%s","type":"%s","campaign":"%s",`, o.id, o.kind, o.campaign) + fmt.Sprintf(format, args...)
	o.line = strings.TrimSuffix(o.line, ",") + "}"
	c.ops = append(c.ops, o)
}

// issue makes one to three new ops and sends them in one message.
func (c *crowd) issue() bool {
	var ops []*op
	for range 1 + c.w.Rng.IntN(3) {
		o := c.invent()
		if o.due {
			c.send(o)
			continue
		}
		ops = append(ops, o)
	}
	c.send(ops...)
	return true
}

// repeat sends some op again: because no answer came, or for no reason.
func (c *crowd) repeat() bool {
	o := c.ops[c.w.Rng.IntN(len(c.ops))]
	if o.heard && c.w.Rng.IntN(3) != 0 {
		return false
	}
	c.send(o)
	return true
}

// invent makes a new command.
func (c *crowd) invent() *op {
	rng := c.w.Rng
	o := &op{campaign: c.campaigns[rng.IntN(len(c.campaigns))]}
	var claim held
	if len(c.codes) > 0 {
		claim = c.codes[rng.IntN(len(c.codes))]
	}
	soon := func() string {
		return wire.At(c.w.Now.Add(c.w.skew + time.Duration(rng.IntN(6000)-1000)*time.Millisecond)).String()
	}
	switch n := rng.IntN(100); {
	case n < 45 || n < 80 && claim.code == "":
		o.kind, o.customer = wire.Claim, fmt.Sprint("customer", rng.IntN(12))
		c.add(o, `"customer_id":"%s"`, o.customer)
	case n < 65:
		o.kind, o.campaign, o.code, o.order = wire.Redeem, claim.campaign, claim.code, fmt.Sprint("order", rng.IntN(4))
		c.add(o, `"code":"%s","order_id":"%s"`, o.code, o.order)
	case n < 73:
		o.kind, o.campaign, o.code, o.order = wire.Rollback, claim.campaign, claim.code, fmt.Sprint("order", rng.IntN(4))
		c.add(o, `"code":"%s","order_id":"%s"`, o.code, o.order)
	case n < 76:
		o.kind, o.campaign, o.code = wire.Void, claim.campaign, claim.code
		c.add(o, `"code":"%s","reason":"because"`, o.code)
	case n < 80:
		o.kind, o.campaign, o.code = wire.Extend, claim.campaign, claim.code
		c.add(o, `"code":"%s","expires_at":"%s"`, o.code, soon())
	case n < 83:
		o.kind = wire.PauseCampaign
		c.add(o, "")
	case n < 88:
		o.kind = wire.ResumeCampaign
		c.add(o, "")
	case n < 93:
		o.kind = wire.UpdateCampaign
		c.add(o, `"codes":%d`, 5+rng.IntN(40))
	default:
		o.kind, o.due = wire.Expire, true
		c.add(o, `"through":"%s"`, soon())
	}
	return o
}

// send puts ops on the network, in one message.
func (c *crowd) send(ops ...*op) {
	if len(ops) == 0 {
		return
	}
	w := c.w
	subject := topology.LaneCmd(0)
	if ops[0].due {
		subject = topology.LaneDue(0)
	}
	var lines []string
	for _, o := range ops {
		lines = append(lines, o.line)
	}
	payload := []byte(strings.Join(lines, "\n"))
	w.Send("command", func() {
		// Each time it arrives it is stored: as a message of its own, with an inbox of its own to distinguish them.
		in := &instance{ops: ops, refused: map[*op]bool{}, stored: w.Now.Add(w.skew)}
		h := nats.Header{}
		if !ops[0].due {
			h.Set(topology.HeaderReply, fmt.Sprint("_INBOX.sim.", len(c.instances)))
		}
		in.seq = w.commands.Append(subject, h, payload, in.stored, !w.lossy)
		c.instances = append(c.instances, in)
	})
}

// of finds the instance an answer is for, and reads the outcomes.
func (c *crowd) of(a protocol.Reply) (*instance, []wire.Outcome) {
	var number int
	if _, err := fmt.Sscanf(a.Subject, "_INBOX.sim.%d", &number); err != nil {
		c.w.Violate("broken simulation", "answer to %s", a.Subject)
		return nil, nil
	}
	in := c.instances[number]
	var outs []wire.Outcome
	for _, line := range bytes.Split(bytes.TrimSuffix(a.Payload, []byte("\n")), []byte("\n")) {
		out, err := wire.ParseOutcome(line)
		if err != nil {
			c.w.Violate("broken simulation", "outcome %s: %v", line, err)
			return nil, nil
		}
		outs = append(outs, out)
	}
	if len(outs) != len(in.ops) {
		c.w.Violate("answers out of order", "%d outcomes for %d commands", len(outs), len(in.ops))
		return nil, nil
	}
	return in, outs
}

// hear is an answer that arrived.
func (c *crowd) hear(a protocol.Reply) {
	in, outs := c.of(a)
	for i := range outs {
		o := in.ops[i]
		o.heard = true
		if o.kind == wire.Claim && !outs[i].Refused() {
			c.codes = append(c.codes, held{o.campaign, outs[i].Code})
		}
	}
}
