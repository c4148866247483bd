package push

import (
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// The endpoints of the service for senders with a key, without "scrip.". A sender with credentials of servers uses JetStream
// itself.
const (
	// EndpointOpen makes what a name needs, and describes the log.
	EndpointOpen = "sender.open"
	// EndpointNext waits for a message of a lane, or of those that wait in a class.
	EndpointNext = "sender.next"
	// EndpointAck acknowledges a message, returns it, or reports progress on it.
	EndpointAck = "sender.ack"
	// EndpointStore reads and writes what the name has: entries of WaitStream, dead letters, counts. It also reads messages.
	EndpointStore = "sender.store"
)

// Fields are the fields of requests, by endpoint.
var Fields = map[string]string{
	EndpointOpen:  "name, since, ack_wait, unacked",
	EndpointNext:  "name, lane, class, wait",
	EndpointAck:   "name, token, as, delay",
	EndpointStore: "name, do, message, class, entry, letter, keys, counts, after",
}

// Headers of a message as an endpoint passes it on, beside its own.
const (
	headerToken    = "Scrip-Push-Token"   // for EndpointAck
	headerSubject  = "Scrip-Push-Subject" // of the message
	headerPosition = "Scrip-Push-Place"   // "<sequence> <stored, ns> <deliveries>"
)

// request is the body of a request, one JSON object. Each endpoint has some of the fields.
type request struct {
	// Name of the audience. A key of role sender has one, see access.Principal.
	Name string `json:"name"`

	// Since is "now", "start" or a time as RFC 3339; it, AckWait and Unacked count for a new name.
	Since   string      `json:"since,omitempty"`
	AckWait wire.Period `json:"ack_wait,omitempty"`
	Unacked int         `json:"unacked,omitempty"`

	Lane  *int        `json:"lane,omitempty"`
	Class string      `json:"class,omitempty"`
	Wait  wire.Period `json:"wait,omitempty"` // up to waitMost

	Token string      `json:"token,omitempty"` // headerToken of the message
	As    string      `json:"as,omitempty"`    // one of asAck, asNak, asProgress
	Delay wire.Period `json:"delay,omitempty"` // with asNak

	Do      string      `json:"do,omitempty"`
	Message *messageID  `json:"message,omitempty"`
	Entry   *entry      `json:"entry,omitempty"`
	Letter  *DeadLetter `json:"letter,omitempty"`
	Keys    []string    `json:"keys,omitempty"` // of reminders, or customers
	Counts  *counts     `json:"counts,omitempty"`
	After   uint64      `json:"after,omitempty"` // an id of a letter
}

// What EndpointStore does.
const (
	doRead    = "read"    // a message of the log
	doWait    = "wait"    // stores an entry
	doLetter  = "letter"  // reads the dead letter of a message
	doAdd     = "add"     // adds reminders to it
	doRemove  = "remove"  // removes reminders from it
	doNext    = "next"    // reads the next dead letter of the name
	doSettle  = "settle"  // stores the result of a retry: the letter without what was delivered
	doOptOuts = "optouts" // which of the customers in keys want no reminders
	doCount   = "count"   // adds to the counts of a lane, and records its position
)

const (
	asAck      = "ack"
	asNak      = "nak" // returned, for any process after a delay
	asProgress = "progress"
)

// opened is what open returns, and the answer of EndpointOpen.
type opened struct {
	Log     string       `json:"log"`
	Format  int          `json:"format"`
	AckWait wire.Period  `json:"ack_wait"` // the shortest of its consumers
	Lanes   []openedLane `json:"lanes"`
}

type openedLane struct {
	Lane  int            `json:"lane"`
	Used  time.Time      `json:"begun"` // when the name was used first
	Skips eventlog.Skips `json:"skips,omitempty"`
}

// counts are of one lane since the last time.
type counts struct {
	Lane      int    `json:"lane"`
	Delivered uint64 `json:"delivered"`
	Dead      uint64 `json:"dead"`
	Failed    uint64 `json:"failed"`
	OptedOut  uint64 `json:"opted_out,omitempty"`
}

// none reports whether there is nothing to add.
func (n counts) none() bool { return n == counts{Lane: n.Lane} }

// storedLetter is a letter, nil if there is no other, and the answer of doNext.
type storedLetter struct {
	Letter  *DeadLetter `json:"letter"`
	Message *messageID  `json:"message"`
	Last    uint64      `json:"last"` // the highest id so far, where the list starts
}
