package push

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// Reminder is one reminder for one customer.
type Reminder struct {
	// Key is the reminder's position and digest, "<log uuid>/<lane>/<sequence>/<line>/<digest>": the same at each delivery.
	// Pass it to the gateway as its idempotency key. The digest is there because a log restored from an older backup uses
	// sequences again.
	Key string `json:"key"`
	// Campaign is the campaign's name.
	Campaign string `json:"campaign"`
	// Kind is what the reminder announces: "opens", the campaign, or "expires", the customer's coupon.
	Kind string `json:"kind"`
	// DueAt is when the reminder was due. Compare it with the clock: a reminder that waited while no sender ran may be of no
	// use any more.
	DueAt time.Time `json:"due_at"`
	// At is when the reminder fired.
	At time.Time `json:"at"`
	// CustomerID is the customer to deliver to.
	CustomerID string `json:"customer_id"`
}

// readLines parses a message of the log. Lines that are no reminders are returned as errors, not as reminders.
func readLines(log string, lane int, m *eventlog.Message) (read []Reminder, bad []error) {
	read = make([]Reminder, 0, bytes.Count(m.Payload, []byte("\n")))
	var e wire.Event
	for n, line := range eventlog.Lines(m.Payload) {
		err := wire.ParseEvent(line, &e)
		if err == nil && (e.Type != wire.ReminderDue || e.CustomerID == "") {
			err = fmt.Errorf("it is no reminder.due with a customer_id, but %.80q", line)
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("line %d: %w", n+1, err))
			continue
		}
		read = append(read, Reminder{
			Key:      fmt.Sprintf("%s/%d/%d/%d/%016x", log, lane, m.Sequence, n+1, digest(line)),
			Campaign: e.Campaign, Kind: e.Kind, DueAt: e.DueAt.Time(), At: e.At.Time(), CustomerID: e.CustomerID,
		})
	}
	return read, bad
}

func digest(line []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(line) // never fails
	return h.Sum64()
}

// encode writes reminders as a dead letter holds them: one JSON line each.
func encode(list []Reminder) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for i := range list {
		if err := enc.Encode(&list[i]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

func decode(payload []byte) ([]Reminder, error) {
	var list []Reminder
	for n, line := range eventlog.Lines(payload) {
		var r Reminder
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		list = append(list, r)
	}
	return list, nil
}
