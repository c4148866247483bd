package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/code"
)

// read interprets one field by its row in the table of fields.
func (c *Command) read(f Field, of *fieldTexts) error {
	raw, spec := of.of(f), &fieldSpecs[f]
	if commands[c.Type].Settings && string(raw) == "null" {
		return c.Patch.unset(f)
	}
	switch p := c.at(f).(type) {
	case *string:
		s, err := of.text(f)
		if err != nil {
			return Invalidf(spec.name, "%s", err)
		}
		if *p = s; f == fPrefix {
			*p = strings.ToUpper(s)
		}
		return spec.checkText(s, of.simple)
	case *Instant:
		return spec.readInstant(raw, p)
	case *time.Duration:
		return spec.readDuration(raw, p)
	case *uint64:
		return spec.readNumber(raw, p)
	case *uint32:
		var n uint64
		err := spec.readNumber(raw, &n)
		*p = uint32(n)
		return err
	case *[]string:
		return c.readCodes(raw)
	case *[]byte:
		if f == fAttributes {
			return c.readAttributes(raw)
		}
		if *p = bytes.Clone(compact(raw)); uint64(len(*p)) > spec.most {
			return Invalidf(spec.name, "must be JSON of at most %d bytes", spec.most)
		}
	}
	return nil
}

// unset takes a setting that is given as null back to its default.
func (p *Patch) unset(f Field) error {
	if f == fCodes {
		return Invalidf("codes", "must be a whole number from 0 to %d", MaxCodes)
	}
	defaults := DefaultSettings(0)
	assign(p.at(f), defaults.at(f))
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

// earliest keeps the due instant of a reminder, up to MaxBefore before a campaign's or coupon's instant, after 1970.
const earliest Instant = 63072000_000000 // 1972-01-01

func (spec *fieldSpec) readInstant(raw []byte, into *Instant) error {
	s, err := unquote(raw)
	if err != nil {
		return Invalidf(spec.name, "must be an RFC 3339 time such as 2026-11-27T00:00:00Z")
	}
	if *into, err = ParseInstant(s); err != nil {
		return Invalidf(spec.name, "%s", err)
	}
	if spec.anchor && *into < earliest {
		return Invalidf(spec.name, "must not lie before 1972")
	}
	return nil
}

func (spec *fieldSpec) readDuration(raw []byte, into *time.Duration) error {
	s, err := unquote(raw)
	if err == nil {
		*into, err = time.ParseDuration(s)
	}
	if err != nil {
		return Invalidf(spec.name, "must be a duration such as 90s, 1m or 72h")
	}
	if least, most := time.Duration(spec.least), time.Duration(spec.most); *into < least || *into > most {
		return Invalidf(spec.name, "must lie between %s and %s", least, most)
	}
	*into = into.Truncate(time.Microsecond)
	return nil
}

func (spec *fieldSpec) readNumber(raw []byte, into *uint64) error {
	v, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil || v < spec.least || v > spec.most {
		return Invalidf(spec.name, "must be a whole number from %d to %d", spec.least, spec.most)
	}
	*into = v
	return nil
}

// checkText refuses what is not one of the texts allowed, or is empty, too long or not printable; printable text may be
// known as such.
func (spec *fieldSpec) checkText(s string, known bool) error {
	switch {
	case spec.oneOf != nil:
		if !slices.Contains(spec.oneOf, s) {
			last := len(spec.oneOf) - 1
			return Invalidf(spec.name, "must be %s or %s", strings.Join(spec.oneOf[:last], ", "), spec.oneOf[last])
		}
	case spec.name == "prefix":
		if err := code.ValidPrefix(s); err != nil {
			return Invalidf(spec.name, "%s", err)
		}
	case s == "":
		return Invalidf(spec.name, "must not be empty")
	case uint64(len(s)) > spec.most:
		return Invalidf(spec.name, "has %d bytes, at most %d are allowed", len(s), spec.most)
	case !known && !printable(s):
		return Invalidf(spec.name, "must be printable UTF-8 without control characters")
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
