package fanout

import (
	"cmp"
	"strconv"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
)

// Queue holds customers whose reminders fired, in the order of the event stream, and makes messages of them. A message is of
// customers, not of firings: it takes up what is there, of several event lines, messages and campaigns, each with a line of
// its own. It does no I/O.
type Queue struct {
	Owner  string
	Sealer eventlog.Sealer
	// Chained lets messages name the one before them, so that several may be in flight. The fence compares numbers, not
	// writers: of two in flight the first could be refused because another fan-out's message came before it, and the second,
	// whose number fits then, would follow that one, which is about other customers. A stream with replicas cannot do that
	// (see eventlog.Attempt): there one is in flight at a time.
	Chained bool
	Last    uint64          // sequence the stream ends with when all that was made is stored
	LastID  string          // of that message, if it is ours and chained
	Reached eventlog.Source // of that message
	Hold    bool            // messages from now on may be held back for a person

	firings []firing // in order; not yet in a message
	waiting int      // customers of firings
	spare   [][]byte // payloads to be used again
	widest  int      // bytes of the largest payload so far
}

// firing is an event line whose customers are to be published.
type firing struct {
	source    eventlog.Source // LastR is not set
	digest    string          // of the event message
	line      dueLine
	priority  priority.Priority // of the campaign
	customers []timers.Fired    // not yet in a message
}

// Add takes in the customers of a reminders.due event: line (from 1) of the event message m. What the stream holds already is
// passed over. The customers are the queue's from now on. of is the campaign's priority at the time of the event.
func (q *Queue) Add(m *eventlog.Message, line int, ev *wire.Event, of priority.Priority, customers []timers.Fired) {
	here := eventlog.Source{Sequence: m.Sequence, Line: line}
	switch c := compareLines(here, q.Reached); {
	case c < 0:
		return
	case c == 0:
		for len(customers) > 0 && customers[0].R <= q.Reached.LastR {
			customers = customers[1:]
		}
	}
	if len(customers) == 0 {
		return
	}
	digest := ""
	if n := len(q.firings); n > 0 && q.firings[n-1].source.Sequence == m.Sequence {
		digest = q.firings[n-1].digest
	} else {
		digest = m.Digest()
	}
	q.firings = append(q.firings, firing{source: here, digest: digest, line: newDueLine(ev), priority: of, customers: customers})
	q.waiting += len(customers)
}

// Next makes a message of at most that many customers, of whom one waits at least, and returns how many it has.
func (q *Queue) Next(most int) (attempt eventlog.Attempt, customers int) {
	var payload []byte
	if n := len(q.spare); n > 0 {
		payload, q.spare = q.spare[n-1][:0], q.spare[:n-1]
	} else {
		payload = make([]byte, 0, q.widest+q.widest/8)
	}
	var to eventlog.Source
	var digest string
	highest := priority.Low // the highest of those in it: low ones may travel with a high one, never the other way round
	for customers < most && len(q.firings) > 0 {
		next := &q.firings[0]
		var n int
		if payload, n = next.line.append(payload, next.customers[:min(len(next.customers), most-customers)]); n == 0 {
			break
		}
		to, digest = next.source, next.digest
		highest = min(highest, next.priority)
		to.LastR = next.customers[n-1].R
		customers += n
		if next.customers = next.customers[n:]; len(next.customers) == 0 {
			q.firings[0] = firing{}
			q.firings = q.firings[1:]
		}
	}
	if len(q.firings) == 0 {
		q.firings = nil
	}
	q.waiting -= customers
	q.widest = max(q.widest, len(payload))
	header := eventlog.Header{Owner: q.Owner, Source: to, SourceDigest: digest, Hold: q.Hold}
	if highest != priority.Normal {
		header.Priority = highest.String()
	}
	attempt = eventlog.Attempt{Expected: q.Last, Header: q.Sealer.Encode(header, q.Last+1, payload), Payload: payload}
	q.Last++
	if q.Chained {
		attempt.After, q.LastID = q.LastID, q.Owner+"-"+strconv.FormatUint(q.Last, 10)
		attempt.ID = q.LastID
	}
	q.Reached = to
	return attempt, customers
}

// dueLine writes the reminder.due lines of one firing. They differ in the lead, the time zone, the customers and their numbers, so
// what precedes the customers is made once for each run of the same lead and zone. The bytes are those of wire.Event.AppendJSON.
type dueLine struct {
	event wire.Event
	head  []byte // of a line with the event's lead and zone, up to and with the bracket that opens the customers' ids
}

func newDueLine(ev *wire.Event) dueLine {
	return dueLine{event: wire.Event{Type: wire.ReminderDue, Campaign: ev.Campaign, At: ev.At, Kind: ev.Kind, DueAt: ev.DueAt}}
}

// append appends one line and its newline to a payload, of the first customers, of whom there is one: those with the same
// lead and zone, as far as the payload has room, but one if it is empty. It returns how many there are.
func (l *dueLine) append(payload []byte, customers []timers.Fired) (_ []byte, n int) {
	if _, zone := customers[0].Name(); l.head == nil || customers[0].Before != l.event.Before || zone != l.event.Zone {
		l.event.Before, l.event.Zone = customers[0].Before, zone
		line := l.event.AppendJSON(l.head[:0])
		l.head = append(line[:len(line)-1], `,"customer_ids":[`...)
	}
	const middle, end = `],"r":[`, "]}\n"
	start, numbers := len(payload), len(middle)+len(end)
	payload = append(payload, l.head...)
	for ; n < len(customers) && customers[n].Before == l.event.Before; n++ {
		customer, zone := customers[n].Name()
		if zone != l.event.Zone {
			break
		}
		at := len(payload)
		if n > 0 {
			payload = append(payload, ',')
		}
		payload = wire.AppendText(payload, customer)
		numbers += 1 + digits(customers[n].R)
		if len(payload)+numbers > wire.MaxDueBytes && start+n > 0 {
			payload = payload[:at]
			break
		}
	}
	if n == 0 {
		return payload[:start], 0
	}
	payload = append(payload, middle...)
	for i := range customers[:n] {
		if i > 0 {
			payload = append(payload, ',')
		}
		payload = strconv.AppendUint(payload, customers[i].R, 10)
	}
	return append(payload, end...), n
}

func digits(n uint64) (d int) {
	for d = 1; n >= 10; d++ {
		n /= 10
	}
	return d
}

// compareLines orders sources by event message and line, which counts from 1.
func compareLines(a, b eventlog.Source) int {
	return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Line, b.Line))
}

// CompareSources orders sources as the reminder stream has them. The zero source is before all others.
func CompareSources(a, b eventlog.Source) int {
	return cmp.Or(compareLines(a, b), cmp.Compare(a.LastR, b.LastR))
}
