package push

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

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

func digest(line []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(line) // never fails
	return h.Sum64()
}

// encode writes items as a dead letter holds them: one JSON line each.
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
