package timers

import (
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// FoldLine applies one line of an event message where that needs no parser: lines that change nothing here, and claims with an
// expiry of their own. False if the line has to be parsed and given to Fold. A replay does eight such lines in the time of
// one other.
func (b *Timers) FoldLine(line []byte) bool {
	return b.claims.fold(b, line) || !wire.MayChangeDue(line)
}

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
	campaign, n, stamp, ok := wire.ClaimParts(line)
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
