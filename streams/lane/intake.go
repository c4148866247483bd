package lane

import (
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// command is one message of the command stream.
type command struct {
	sequence uint64
	stamped  time.Time // when the log stored it
	scope    domain.Scope
	campaign string
	reply    string
	payload  []byte
}

// commandOf reads what a command message says about itself.
func (l *Lane) commandOf(msg *eventlog.Raw) (command, error) {
	// Microseconds, because that is what the log and the tables keep.
	c := command{sequence: msg.Sequence, stamped: msg.Time.Truncate(time.Microsecond), payload: msg.Data}
	kind, _, campaign, ok := topology.ParseCommandSubject(msg.Subject)
	if !ok {
		// The stream listens on nothing else, so this cannot come from a publisher.
		return command{}, fmt.Errorf("command %d stands on subject %s, which is none of a lane", c.sequence, msg.Subject)
	}
	c.campaign = campaign
	switch kind {
	case topology.Cmd:
		c.scope = domain.ScopeProducer
	case topology.Admin:
		c.scope = domain.ScopeOperator
	case topology.Multi:
		c.scope = domain.ScopeTrusted
	case topology.Due:
		c.scope = domain.ScopeScheduler
	}
	if reply := msg.Header.Get(topology.HeaderReply); isInbox(reply) {
		c.reply = reply
	} else if reply != "" {
		l.opt.Metrics.badReply.WithLabelValues(l.label).Inc()
	}
	return c, nil
}

// isInbox reports whether subject is literal and lies under _INBOX. or _INBOX_<user>. Anything else could make the
// lane publish, with its own rights, where the sender may not: to the log itself, or to the JetStream API.
func isInbox(subject string) bool {
	if len(subject) < len("_INBOX")+2 || len(subject) > 256 || subject[:len("_INBOX")] != "_INBOX" {
		return false
	}
	rest := subject[len("_INBOX"):]
	if rest[0] != '.' && rest[0] != '_' {
		return false
	}
	tokens := 0
	length := 0
	for i := 0; i < len(subject); i++ {
		switch c := subject[i]; {
		case c == '.':
			if length == 0 {
				return false
			}
			tokens, length = tokens+1, 0
		case c == '*' || c == '>' || c <= ' ' || c >= 0x7f:
			return false
		default:
			length++
		}
	}
	return tokens > 0 && length > 0
}
