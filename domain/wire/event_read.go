package wire

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseEvent reads one event line into e, which is overwritten. Byte slices point into line. Unknown fields are
// skipped; an unknown type is an error: a reader must not pretend to have understood it.
func ParseEvent(line []byte, e *Event) error {
	err := e.ParseView(line)
	for _, s := range [...]*string{
		&e.Campaign, &e.ID, &e.Code, &e.CustomerID, &e.OrderID, &e.Reason, &e.Status, &e.Kind, &e.Payload,
		&e.Settings.Prefix, &e.Settings.Category, &e.Settings.Priority,
	} {
		*s = strings.Clone(*s)
	}
	return err
}

// parse reads a line as ParseEvent does, but its texts are views of the line too.
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
			return fmt.Errorf("the event's %s: %w", shorten(string(key), 32), err)
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
	number := func(into *uint64) { *into, err = strconv.ParseUint(View(raw), 10, 64) }
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
	duration := func(into *time.Duration) {
		var s string
		if text(&s); err == nil {
			*into, err = time.ParseDuration(s)
		}
	}
	switch string(key) {
	case "type":
		if len(raw) < 2 || raw[0] != '"' {
			return errSyntax
		}
		if e.Type = eventNamed(raw[1 : len(raw)-1]); e.Type == NoEvent {
			return fmt.Errorf("%s is not known to this version", shorten(string(raw), 40))
		}
	case "campaign":
		text(&e.Campaign)
	case "at":
		instant(&e.At)
	case "id":
		text(&e.ID)
	case "number":
		small(&e.Number)
	case "codes":
		if len(raw) > 0 && raw[0] == '[' {
			e.Codes, err = texts(raw)
		} else {
			small(&e.Settings.Codes)
		}
	case "per_customer":
		small(&e.Settings.PerCustomer)
	case "opens_at":
		instant(&e.Settings.OpensAt)
	case "closes_at":
		instant(&e.Settings.ClosesAt)
	case "expires_at":
		// Of a campaign or of a coupon; the type may come later, so both are set.
		instant(&e.ExpiresAt)
		e.Settings.ExpiresAt = e.ExpiresAt
	case "valid_for":
		duration(&e.Settings.ValidFor)
	case "late_after":
		duration(&e.Settings.LateAfter)
	case "max_redemptions":
		small(&e.Settings.MaxRedemptions)
	case "prefix":
		text(&e.Settings.Prefix)
	case "category":
		text(&e.Settings.Category)
	case "priority":
		text(&e.Settings.Priority)
	case "benefit":
		e.Settings.Benefit = raw
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
	case "reason":
		text(&e.Reason)
	case "status":
		text(&e.Status)
	case "through":
		instant(&e.Through)
	case "count":
		number(&e.Count)
	case "r":
		number(&e.R)
	case "kind":
		text(&e.Kind)
	case "before":
		duration(&e.Before)
	case "due_at":
		instant(&e.DueAt)
	case "from_r":
		number(&e.FromR)
	case "through_r":
		number(&e.ThroughR)
	case "fired":
		number(&e.Fired)
	case "dropped":
		number(&e.Dropped)
	case "passed":
		instant(&e.Passed)
	case "counts":
		e.Refused, err = refusals(raw)
	case "sample":
		e.Sample, err = texts(raw)
	case "last_sequence":
		number(&e.LastSequence)
	case "bytes":
		number(&e.Bytes)
	case "sequence":
		number(&e.Sequence)
	case "line":
		small(&e.Line)
	case "payload":
		text(&e.Payload)
	}
	return err
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
