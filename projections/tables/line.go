package tables

import (
	"errors"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

// Line is one event line with its position in its lane.
type Line struct {
	Sequence uint64 // of the event message
	Number   uint32 // of the line in it, from 1
	Event    wire.Event

	// Problem is why the line cannot be applied and becomes a dead letter. Raw and At are stored in the dead letter:
	// the line, and the lane time of its message.
	Problem error
	Raw     []byte
	At      wire.Instant
}

// maxParked is the maximum of bytes of a line in a dead letter.
const maxParked = 4 << 10

// Read parses a line into l. Event refers to raw, which must not change until the line has been applied.
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
	// PostgreSQL rejects U+0000 in text, and JSON may contain an escaped one. A campaign name with one is invalid:
	// replacing it would give another name.
	if pgcopy.Clean(e.Campaign) != e.Campaign {
		l.Problem = errors.New("campaign: is not a campaign's name")
		return
	}
	for _, s := range [...]*string{&e.Code, &e.CustomerID, &e.OrderID, &e.Reason, &e.Kind, &e.By, &e.Payload} {
		*s = pgcopy.Clean(*s)
	}
	if e.Type == wire.CampaignCreated || e.Type == wire.CampaignUpdated {
		s := &e.Settings
		s.Prefix, s.Category, s.Priority = pgcopy.Clean(s.Prefix), pgcopy.Clean(s.Category), pgcopy.Clean(s.Priority)
	}
}

// payload returns the part of a line that a dead letter keeps.
func (l *Line) payload() string {
	raw := l.Raw
	if len(raw) > maxParked {
		raw = raw[:maxParked]
		for len(raw) > 0 && !utf8.RuneStart(l.Raw[len(raw)]) {
			raw = raw[:len(raw)-1] // not in the middle of a character
		}
	}
	return pgcopy.Clean(string(raw))
}

// positionLines is above the maximum of lines in a message: 512 KiB have far fewer.
const positionLines = 1 << 20

// position packs the event's position in its lane into one number; see projections/schema/tables.sql.
func (l *Line) position() int64 { return int64(l.Sequence)*positionLines + int64(l.Number) }
