package tables

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Line is one event line with its place in its lane.
type Line struct {
	Sequence uint64 // of the event message
	Number   uint32 // of the line in it, from 1
	Event    wire.Event

	// Problem says why the line cannot be applied; it is parked as a dead letter then. Raw and At are what is parked:
	// the line, and the lane's clock at its message.
	Problem error
	Raw     []byte
	At      wire.Instant
}

// maxParked caps what a dead letter keeps of a line.
const maxParked = 4 << 10

// Read parses a line into l. Event points into raw, which must stay as it is until the line has been applied.
func (l *Line) Read(sequence uint64, number uint32, raw []byte, at wire.Instant) {
	l.Sequence, l.Number, l.Raw, l.At = sequence, number, raw, at
	l.Problem = wire.ParseEvent(raw, &l.Event)
	if l.Problem != nil {
		return
	}
	e := &l.Event
	if e.At <= 0 {
		l.Problem = errors.New("the event line has no at")
		return
	}
	// PostgreSQL refuses U+0000 in text, and JSON may hide one. Names of campaigns have none, or they would become
	// other names.
	if clean(e.Campaign) != e.Campaign {
		l.Problem = errors.New("campaign: is not a campaign's name")
		return
	}
	for _, s := range [...]*string{&e.Code, &e.CustomerID, &e.OrderID, &e.Reason, &e.Kind, &e.Payload} {
		*s = clean(*s)
	}
	if e.Type == wire.CampaignCreated || e.Type == wire.CampaignUpdated {
		s := &e.Settings
		s.Prefix, s.Category, s.Priority = clean(s.Prefix), clean(s.Category), clean(s.Priority)
	}
}

// clean makes s fit for PostgreSQL's text.
func clean(s string) string {
	if strings.IndexByte(s, 0) < 0 && utf8.ValidString(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// payload is what is kept of a parked line.
func (l *Line) payload() string {
	raw := l.Raw
	if len(raw) > maxParked {
		raw = raw[:maxParked]
		for len(raw) > 0 && !utf8.RuneStart(l.Raw[len(raw)]) {
			raw = raw[:len(raw)-1] // not in the middle of a character
		}
	}
	return clean(string(raw))
}
