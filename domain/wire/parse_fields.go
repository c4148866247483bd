package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/code"
)

// read interprets one field.
func (c *Command) read(f field, of *fieldTexts) error {
	raw := of.of(f)
	if c.Type == CreateCampaign || c.Type == UpdateCampaign {
		return c.readSetting(f, raw)
	}
	switch f {
	case fCodes:
		return c.readCodes(raw)
	case fAttributes:
		return c.readAttributes(raw)
	case fExpiresAt:
		return readAnchor(f, raw, &c.ExpiresAt)
	case fThrough:
		return readInstant(f, raw, &c.Through)
	case fDueAt:
		return readInstant(f, raw, &c.DueAt)
	case fReadyAt:
		return readInstant(f, raw, &c.ReadyAt)
	case fThroughR:
		return readNumber(f, raw, 1, 1<<53, &c.ThroughR)
	case fBefore:
		return readDuration(f, raw, 0, MaxBefore, &c.Before)
	}
	s, err := of.text(f)
	if err != nil {
		return Invalidf(fieldNames[f], "%s", err)
	}
	switch f {
	case fCustomerID:
		c.CustomerID = s
		return checkText("customer_id", s, MaxCustomerID, of.simple)
	case fOrderID:
		c.OrderID = s
		return checkText("order_id", s, MaxOrderID, of.simple)
	case fCode:
		c.Code = s
		return checkText("code", s, MaxCodeInput, of.simple)
	case fReason:
		c.Reason = s
		return checkText("reason", s, MaxReason, of.simple)
	case fKind:
		c.Kind = s
		if s != KindOpens && s != KindExpires {
			return Invalidf("kind", "must be %s or %s", KindOpens, KindExpires)
		}
	}
	return nil
}

// readSetting interprets one setting of a create or update; null stands for "none".
func (c *Command) readSetting(f field, raw []byte) error {
	p := &c.Patch
	if string(raw) == "null" {
		d := DefaultSettings(0)
		switch f {
		case fCodes:
			return Invalidf("codes", "must be a whole number from 0 to %d", MaxCodes)
		case fPerCustomer:
			p.PerCustomer = d.PerCustomer
		case fMaxRedemptions:
			p.MaxRedemptions = d.MaxRedemptions
		case fPriority:
			p.Priority = d.Priority
		}
		return nil
	}
	var n uint64
	var s string
	var err error
	switch f {
	case fCodes:
		err = readNumber(f, raw, 0, MaxCodes, &n)
		p.Codes = uint32(n)
		return err
	case fPerCustomer:
		err = readNumber(f, raw, 0, MaxPerCustomer, &n)
		p.PerCustomer = uint32(n)
		return err
	case fMaxRedemptions:
		err = readNumber(f, raw, 1, MaxRedemptions, &n)
		p.MaxRedemptions = uint32(n)
		return err
	case fOpensAt:
		return readAnchor(f, raw, &p.OpensAt)
	case fClosesAt:
		return readAnchor(f, raw, &p.ClosesAt)
	case fExpiresAt:
		return readAnchor(f, raw, &p.ExpiresAt)
	case fValidFor:
		return readDuration(f, raw, time.Second, MaxValidFor, &p.ValidFor)
	case fLateAfter:
		return readDuration(f, raw, time.Second, MaxBefore, &p.LateAfter)
	case fBenefit:
		if p.Benefit = bytes.Clone(compact(raw)); len(p.Benefit) > MaxBenefit {
			return Invalidf("benefit", "must be JSON of at most %d bytes", MaxBenefit)
		}
		return nil
	}
	if s, err = unquote(raw); err != nil {
		return Invalidf(fieldNames[f], "%s", err)
	}
	switch f {
	case fPrefix:
		p.Prefix = strings.ToUpper(s)
		if err := code.ValidPrefix(s); err != nil {
			return Invalidf("prefix", "%s", err)
		}
	case fCategory:
		p.Category = s
		return checkText("category", s, MaxCategory, false)
	case fPriority:
		p.Priority = s
		if s != PriorityHigh && s != PriorityNormal && s != PriorityLow {
			return Invalidf("priority", "must be high, normal or low")
		}
	}
	return nil
}

// readCodes reads the array of an import.
func (c *Command) readCodes(raw []byte) error {
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
		return Invalidf("codes", "must be an array of at least one code")
	}
	for i, s := range list {
		n, err := code.NormalizeImported(s)
		if err != nil {
			return Invalidf("codes", "code %d (%q): %s", i+1, shorten(s, 64), err)
		}
		list[i] = n
	}
	c.Codes = list
	return nil
}

// earliest keeps a reminder's due time, which lies up to MaxBefore ahead of a campaign's or coupon's instant, after 1970.
const earliest Instant = 63072000_000000 // 1972-01-01

// readAnchor reads an instant that reminders may hang on.
func readAnchor(f field, raw []byte, into *Instant) error {
	if err := readInstant(f, raw, into); err != nil {
		return err
	}
	if *into < earliest {
		return Invalidf(fieldNames[f], "must not lie before 1972")
	}
	return nil
}

func readInstant(f field, raw []byte, into *Instant) error {
	s, err := unquote(raw)
	if err != nil {
		return Invalidf(fieldNames[f], "must be an RFC 3339 time such as 2026-11-27T00:00:00Z")
	}
	if *into, err = ParseInstant(s); err != nil {
		return Invalidf(fieldNames[f], "%s", err)
	}
	return nil
}

func readDuration(f field, raw []byte, least, most time.Duration, into *time.Duration) error {
	s, err := unquote(raw)
	if err == nil {
		*into, err = time.ParseDuration(s)
	}
	if err != nil {
		return Invalidf(fieldNames[f], "must be a duration such as 90s, 1m or 72h")
	}
	if *into < least || *into > most {
		return Invalidf(fieldNames[f], "must lie between %s and %s", least, most)
	}
	*into = into.Truncate(time.Microsecond)
	return nil
}

func readNumber(f field, raw []byte, least, most uint64, into *uint64) error {
	v, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil || v < least || v > most {
		return Invalidf(fieldNames[f], "must be a whole number from %d to %d", least, most)
	}
	*into = v
	return nil
}

// checkText refuses what is empty, too long or not printable, unless that is known.
func checkText(name, s string, most int, known bool) error {
	switch {
	case s == "":
		return Invalidf(name, "must not be empty")
	case len(s) > most:
		return Invalidf(name, "has %d bytes, at most %d are allowed", len(s), most)
	case !known && !printable(s):
		return Invalidf(name, "must be printable UTF-8 without control characters")
	}
	return nil
}

// shorten cuts s to at most n bytes for a message.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return fmt.Sprintf("%s…", s[:n])
}
