package scheduler

import (
	"bytes"

	"github.com/seed-4a2410e3/scrip/domain"
)

// Where coupons live for some time from their claim, nearly every line of a busy lane is a claim with an expiry of its
// own, of which the book wants two numbers. They are taken from the line where it is as this program writes it; any other
// line is parsed, with the same result.
//
//	{"type":"coupon.claimed","campaign":"summer","at":"…","id":"…","n":17,"code":"…", … ,"expires_at":"…"}

// claimReader remembers the last expiry read: claims of one minute have the same.
type claimReader struct {
	stamp string
	at    domain.Instant
}

// fold applies a claim with an expiry of its own to the book; false if the line has to be parsed.
func (c *claimReader) fold(b *book, line []byte) bool {
	campaign, n, stamp, ok := claimParts(line)
	if !ok {
		return false
	}
	e := b.campaigns[string(campaign)]
	if e == nil {
		return false // the parser's way says what is wrong
	}
	if string(stamp) != c.stamp {
		s := string(stamp)
		at, err := domain.ParseInstant(s)
		if err != nil {
			return false
		}
		c.stamp, c.at = s, at
	}
	b.touch(e)
	b.ownExpiry(e, n, c.at)
	return true
}

var (
	claimCampaign = []byte(`{"type":"coupon.claimed","campaign":"`)
	claimAt       = []byte(`,"at":"`)
	claimID       = []byte(`,"id":"`)
	claimN        = []byte(`,"n":`)
	claimCode     = []byte(`,"code":"`)
	claimExpires  = []byte(`,"expires_at":"`)
	claimEnd      = []byte(`"}`)
)

// claimParts takes the line apart from both ends, so that no customer and no attribute, whatever they look like, stands
// in between. A backslash anywhere could make a quote that ends nothing.
func claimParts(line []byte) (campaign []byte, n uint32, expires []byte, ok bool) {
	if !bytes.HasPrefix(line, claimCampaign) || !bytes.HasSuffix(line, claimEnd) {
		return nil, 0, nil, false
	}
	line = line[:len(line)-len(claimEnd)]
	last := bytes.LastIndexByte(line, '"') + 1 // where the instant begins
	if !bytes.HasSuffix(line[:last], claimExpires) || bytes.IndexByte(line, '\\') >= 0 {
		return nil, 0, nil, false
	}
	expires = line[last:]
	campaign, rest, ok := text(line[len(claimCampaign):], true)
	if rest, ok = after(rest, claimAt, ok); !ok {
		return nil, 0, nil, false
	}
	_, rest, ok = text(rest, ok)
	if rest, ok = after(rest, claimID, ok); !ok {
		return nil, 0, nil, false
	}
	_, rest, ok = text(rest, ok)
	if rest, ok = after(rest, claimN, ok); !ok {
		return nil, 0, nil, false
	}
	digits := 0
	for digits < len(rest) && digits < 9 && rest[digits] >= '0' && rest[digits] <= '9' {
		n = n*10 + uint32(rest[digits]-'0') // nine digits: no more coupons than that
		digits++
	}
	if rest, ok = after(rest[digits:], claimCode, digits > 0 && rest[0] != '0'); !ok {
		return nil, 0, nil, false
	}
	return campaign, n, expires, len(rest) > len(expires)
}

// text reads up to the closing quote.
func text(b []byte, ok bool) (value, rest []byte, _ bool) {
	if i := bytes.IndexByte(b, '"'); ok && i >= 0 {
		return b[:i], b[i+1:], true
	}
	return nil, nil, false
}

// after passes over what must stand there.
func after(b, prefix []byte, ok bool) ([]byte, bool) {
	if !ok || !bytes.HasPrefix(b, prefix) {
		return nil, false
	}
	return b[len(prefix):], true
}
