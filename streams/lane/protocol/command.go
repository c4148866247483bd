package protocol

import (
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/replyto"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Command is one message of the command stream.
type Command struct {
	Sequence uint64
	Stamped  time.Time // when the log stored it
	Scope    domain.Scope
	Campaign string
	Reply    string // inbox, "" = nobody waits
	BadReply bool   // a reply subject was given that is no inbox
	Payload  []byte
}

// CommandOf reads what a command message says about itself.
func CommandOf(msg *eventlog.Raw) (Command, error) {
	// Microseconds, because that is what the log and the tables keep.
	c := Command{Sequence: msg.Sequence, Stamped: msg.Time.Truncate(time.Microsecond), Payload: msg.Data}
	kind, _, campaign, ok := topology.ParseCommandSubject(msg.Subject)
	if !ok {
		// The stream listens on nothing else, so this cannot come from a publisher.
		return Command{}, fmt.Errorf("command %d stands on subject %s, which is none of a lane", c.Sequence, msg.Subject)
	}
	c.Campaign = campaign
	switch kind {
	case topology.Cmd, topology.Shop:
		c.Scope = domain.ScopeProducer
	case topology.Admin:
		c.Scope = domain.ScopeOperator
	case topology.Multi:
		c.Scope = domain.ScopeTrusted
	case topology.Due:
		c.Scope = domain.ScopeScheduler
	}
	// The lane publishes outcomes with its own rights.
	if reply := msg.Header.Get(topology.HeaderReply); replyto.Inbox(reply) {
		c.Reply = reply
	} else {
		c.BadReply = reply != ""
	}
	return c, nil
}

// Early is how much longer a command must wait, because it is stamped further in the future of our clock than clocks
// may differ: deciding it would expire coupons that are still good, and lane time never runs back. Not above 0: decide.
func (c *Command) Early(now time.Time, tolerance time.Duration) time.Duration {
	return c.Stamped.Sub(now) - tolerance
}
