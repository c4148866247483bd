package fanout

import (
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain"
)

// dueLine writes the reminder.due lines of one firing. They differ in the customer only, so what precedes it is made once.
// The bytes are those of domain.Event.AppendJSON.
type dueLine struct {
	event  domain.Event
	before []byte // up to and with the quote that opens the customer's id
}

func newDueLine(ev *domain.Event) dueLine {
	l := dueLine{event: domain.Event{Type: domain.ReminderDue, Campaign: ev.Campaign, At: ev.At, Kind: ev.Kind, DueAt: ev.DueAt}}
	line := l.event.AppendJSON(nil)
	l.before = append(line[:len(line)-1], `,"customer_id":"`...)
	return l
}

// append appends one line and its newline.
func (l *dueLine) append(dst []byte, customer string) []byte {
	if !plain(customer) {
		l.event.CustomerID = customer
		return append(l.event.AppendJSON(dst), '\n')
	}
	dst = append(append(dst, l.before...), customer...)
	return append(dst, "\"}\n"...)
}

// plain reports whether an id is written in JSON text as it is, as nearly all are.
func plain(id string) bool {
	for i := range len(id) {
		if c := id[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return id != "" // a field without value is left out
}
