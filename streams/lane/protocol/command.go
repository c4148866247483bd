package protocol

import (
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/replyto"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Command is one message of the command stream.
type Command struct {
	Sequence uint64
	Stamped  time.Time // when the log stored it
	Scope    wire.Scope
	Campaign string
	Reply    string // inbox, "" = none
	BadReply bool   // the reply subject is no inbox
	Payload  []byte
}

// CommandOf reads a command message's subject and headers.
func CommandOf(msg *eventlog.Raw) (Command, error) {
	// Microseconds, because the log and the tables store those.
	c := Command{Sequence: msg.Sequence, Stamped: msg.Time.Truncate(time.Microsecond), Payload: msg.Data}
	kind, _, campaign, ok := topology.ParseCommandSubject(msg.Subject)
	if !ok {
		// The stream has no other subjects, so no publisher can cause this.
		return Command{}, fmt.Errorf("command %d has subject %s, which is none of a lane", c.Sequence, msg.Subject)
	}
	c.Campaign = campaign
	switch kind {
	case topology.Cmd, topology.Shop:
		c.Scope = wire.ScopeProducer
	case topology.Admin:
		c.Scope = wire.ScopeOperator
	case topology.Multi:
		c.Scope = wire.ScopeTrusted
	case topology.Due:
		c.Scope = wire.ScopeScheduler
	}
	// The lane publishes outcomes with its own permissions.
	if reply := msg.Header.Get(topology.HeaderReply); replyto.Inbox(reply) {
		c.Reply = reply
	} else {
		c.BadReply = reply != ""
	}
	return c, nil
}

// Early returns how much longer a command must wait, because its timestamp is further ahead of now than the tolerance:
// deciding it would expire coupons too early, and lane time never runs backwards. Not above 0: decide it.
func (c *Command) Early(now time.Time, tolerance time.Duration) time.Duration {
	return c.Stamped.Sub(now) - tolerance
}
