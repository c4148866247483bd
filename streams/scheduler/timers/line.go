package timers

import (
	"bytes"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// FoldLine applies one line of an event message where that needs no parser: lines that change nothing here, and claims with an
// expiry of their own. False if the line has to be parsed and given to Fold. A replay does eight such lines in the time of
// one other.
func (b *Timers) FoldLine(line []byte) bool {
	if bytes.HasPrefix(line, claimed) {
		// Without an expiry of its own the coupon expires with its campaign.
		return b.claims.fold(b, line) || !bytes.Contains(line, expiresAt)
	}
	for _, prefix := range ignored {
		if bytes.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// ignored are the beginnings of lines that change nothing here, as this program writes them. Most lines of a busy lane are
// such, and parsing them would cost more than all else. A line written in any other way is parsed.
var ignored = [][]byte{
	[]byte(`{"type":"coupon.redeemed",`),
	[]byte(`{"type":"coupon.rolled_back",`),
	[]byte(`{"type":"coupon.voided",`),
	[]byte(`{"type":"codes.imported",`),
	[]byte(`{"type":"commands.refused",`),
	[]byte(`{"type":"command.rejected",`),
}

var (
	claimed   = []byte(`{"type":"coupon.claimed",`)
	expiresAt = []byte(`"expires_at":`)
)

// claimReader takes the two numbers that matter from a claim with an expiry of its own: where coupons live for some time from
// their claim, nearly every line of a busy lane is one. It reads the line as this program writes it; any other line is
// parsed, with the same result.
//
//	{"type":"coupon.claimed","campaign":"summer","at":"…","id":"…","n":17,"code":"…", … ,"expires_at":"…"}
//
// It remembers the last expiry: claims of one minute have the same.
type claimReader struct {
	stamp string
	at    wire.Instant
}

// fold applies the claim; false if the line has to be parsed.
func (c *claimReader) fold(b *Timers, line []byte) bool {
	campaign, n, stamp, ok := claimParts(line)
	if !ok {
		return false
	}
	e := b.campaigns[string(campaign)]
	if e == nil {
		return false // Fold returns the error
	}
	if string(stamp) != c.stamp {
		s := string(stamp)
		at, err := wire.ParseInstant(s)
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

// claimParts takes the line apart from both ends, so that no customer and no attribute, whatever they look like, lies
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

// after passes over a prefix that must be there.
func after(b, prefix []byte, ok bool) ([]byte, bool) {
	if !ok || !bytes.HasPrefix(b, prefix) {
		return nil, false
	}
	return b[len(prefix):], true
}
