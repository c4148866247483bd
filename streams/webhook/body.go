package webhook

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/push"
)

const (
	// bodyMost bounds the body of a request.
	bodyMost = 256 << 10
	// TypeEvents and TypeTest are the types of requests that are no event's.
	TypeEvents = "events"
	TypeTest   = "webhook.test"
)

// event is one event of a body. In a body of one it has no id: that is in the header.
type event struct {
	ID        string          `json:"id,omitempty"`
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

// request is what is sent at once: lines from first on, with one id.
type request struct {
	id    string
	body  []byte
	first int // index in the batch
	lines int

	status int // of the answer, 0 = none
}

// SecretFields are left out of the data of endpoints without codes: a code is money, and attributes may be personal.
var SecretFields = []string{"code", "codes", "attributes"}

// eventID follows from the position of the line and its digest: the same at each try, and on a restored log.
func eventID(l *push.Line) string {
	kind := "evt_"
	if l.Type == wire.ReminderDue.String() {
		kind = "rmd_" // the key of an event and of a reminder may be equal
	}
	return kind + digest(kind+l.Key)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}

// eventOf makes an event of a line: type and at become type and timestamp, all other fields its data.
func eventOf(l *push.Line, codes bool) (event, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(l.Raw, &fields); err != nil {
		return event{}, fmt.Errorf("the line %s: %w", l.Key, err)
	}
	delete(fields, "type")
	delete(fields, "at")
	if !codes {
		for _, name := range SecretFields {
			delete(fields, name)
		}
	}
	data, err := json.Marshal(fields) // in the order of names, so that each try has the same bytes
	return event{ID: eventID(l), Type: l.Type, Timestamp: l.At.UTC(), Data: data}, err
}

// requests divides a batch into requests of at most bodyMost. With single each event is a request of its own.
func requests(batch []push.Line, single, codes bool) ([]request, error) {
	var all []request
	var events []event
	size := 0
	flush := func(first int) error {
		if len(events) == 0 {
			return nil
		}
		var ids strings.Builder
		for i := range events {
			ids.WriteString(events[i].ID)
		}
		data, err := json.Marshal(map[string]any{"events": events})
		if err != nil {
			return err
		}
		body, err := json.Marshal(event{Type: TypeEvents, Timestamp: events[len(events)-1].Timestamp, Data: data})
		all = append(all, request{id: "evts_" + digest(ids.String()), body: body, first: first, lines: len(events)})
		events, size = events[:0], 0
		return err
	}
	for i := range batch {
		e, err := eventOf(&batch[i], codes)
		if err != nil {
			return nil, err
		}
		if single {
			id := e.ID
			e.ID = ""
			body, err := json.Marshal(e)
			if err != nil {
				return nil, err
			}
			all = append(all, request{id: id, body: body, first: i, lines: 1})
			continue
		}
		const envelope = 200
		if n := len(e.Data) + envelope; size+n > bodyMost-envelope {
			if err := flush(i - len(events)); err != nil {
				return nil, err
			}
			size = n
		} else {
			size += n
		}
		events = append(events, e)
	}
	return all, flush(len(batch) - len(events))
}
