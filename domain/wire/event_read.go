package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseEvent reads one event line into e, which is overwritten. Byte slices point into line. Unknown fields are
// skipped; an unknown type is an error, because a reader cannot know what it changes.
func ParseEvent(line []byte, e *Event) error {
	err := e.ParseView(line)
	for f := fUnknown + 1; f < numFields; f++ {
		if text, ok := e.at(f).(*string); ok {
			*text = strings.Clone(*text)
		}
	}
	return err
}

// ParseDue is ParseEvent, but the line must be what CheckDue accepts.
func (e *Event) ParseDue(line []byte) error {
	if err := ParseEvent(line, e); err != nil {
		return err
	}
	return e.CheckDue()
}

// CheckDue returns an error unless the event is a reminder.due of customers with a number each.
func (e *Event) CheckDue() error {
	if e.Type != ReminderDue || len(e.CustomerIDs) == 0 || len(e.CustomerIDs) != len(e.Rs) {
		return fmt.Errorf("it is no reminder.due with customer_ids and as many r")
	}
	return nil
}

// ParseView is ParseEvent, but texts are views of the line too.
func (e *Event) ParseView(line []byte) error {
	*e = Event{}
	o := object{data: line, simple: simple(line)}
	for {
		key, raw, done, err := o.next()
		if err != nil {
			return fmt.Errorf("the event line %w", err)
		}
		if done {
			break
		}
		if err := e.read(key, raw, o.simple); err != nil {
			return fmt.Errorf("the event's %s: %w", Shorten(string(key), 32), err)
		}
	}
	switch e.Type {
	case NoEvent:
		return fmt.Errorf("the event line has no type")
	case CampaignCreated, CampaignUpdated:
		e.ExpiresAt = 0
	default:
		e.Settings.ExpiresAt = 0
	}
	return nil
}

func (e *Event) read(key, raw []byte, simple bool) (err error) {
	text := func(into *string) {
		if simple && len(raw) >= 2 && raw[0] == '"' {
			*into = View(raw[1 : len(raw)-1])
		} else {
			*into, err = unquote(raw)
		}
	}
	small := func(into *uint32) {
		var n uint64
		if n, err = strconv.ParseUint(View(raw), 10, 32); err == nil {
			*into = uint32(n)
		}
	}
	instant := func(into *Instant) {
		if len(raw) < 2 || raw[0] != '"' {
			err = errSyntax
			return
		}
		*into, err = parseStamp(raw[1 : len(raw)-1])
	}
	switch string(key) {
	case "type":
		if len(raw) < 2 || raw[0] != '"' {
			return errSyntax
		}
		if e.Type = EventNamed(raw[1 : len(raw)-1]); e.Type == NoEvent {
			return fmt.Errorf("%s is not known to this version", Shorten(string(raw), 40))
		}
	case "campaign":
		text(&e.Campaign)
	case "at":
		instant(&e.At)
	case "id":
		text(&e.ID)
	case "expires_at":
		// Of a campaign or of a coupon; the type may come later, so both are set.
		instant(&e.ExpiresAt)
		e.Settings.ExpiresAt = e.ExpiresAt
	case "n":
		small(&e.N)
	case "code":
		text(&e.Code)
	case "customer_id":
		text(&e.CustomerID)
	case "attributes":
		e.Attributes = raw
	case "order_id":
		text(&e.OrderID)
	case "redeemed_count":
		small(&e.RedeemedCount)
	default:
		return e.readField(key, raw)
	}
	return err
}

// readField reads a field as the table has it. A name that is not in the table is skipped.
func (e *Event) readField(key, raw []byte) error {
	f := fieldNamed(key)
	if len(raw) > 0 && raw[0] == '[' {
		switch f {
		case fCodes:
			f = fCodeList
		case fR:
			f = fRList
		}
	}
	if f == fUnknown || f == fType {
		return nil
	}
	return readValue(e.at(f), raw)
}

func refusals(raw []byte) (list []RefusalCount, err error) {
	o := object{data: raw}
	for {
		key, value, done, err := o.next()
		if done || err != nil {
			return list, err
		}
		n, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil {
			return list, err
		}
		list = append(list, RefusalCount{Refusal(key), n})
	}
}
