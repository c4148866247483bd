package wire

import "bytes"

var (
	claimCampaign = []byte(`{"type":"coupon.claimed","campaign":"`)
	claimAt       = []byte(`,"at":"`)
	claimID       = []byte(`,"id":"`)
	claimN        = []byte(`,"n":`)
	claimCode     = []byte(`,"code":"`)
	claimExpires  = []byte(`,"expires_at":"`)
	claimEnd      = []byte(`"}`)
)

// ClaimParts reads campaign, coupon and expiry of a coupon.claimed line with an own expiry as AppendJSON writes it; the parts
// are slices of the line. ok is false for any other line. It reads the line from both ends, so that no customer and no
// attribute, whatever they contain, is in between. A backslash anywhere could make a quote that ends nothing.
func ClaimParts(line []byte) (campaign []byte, n uint32, expires []byte, ok bool) {
	if !bytes.HasPrefix(line, claimCampaign) || !bytes.HasSuffix(line, claimEnd) {
		return nil, 0, nil, false
	}
	line = line[:len(line)-len(claimEnd)]
	last := bytes.LastIndexByte(line, '"') + 1 // where the instant is
	if !bytes.HasSuffix(line[:last], claimExpires) || bytes.IndexByte(line, '\\') >= 0 {
		return nil, 0, nil, false
	}
	expires = line[last:]
	campaign, rest, ok := textUpTo(line[len(claimCampaign):], true)
	if rest, ok = after(rest, claimAt, ok); !ok {
		return nil, 0, nil, false
	}
	_, rest, ok = textUpTo(rest, ok)
	if rest, ok = after(rest, claimID, ok); !ok {
		return nil, 0, nil, false
	}
	_, rest, ok = textUpTo(rest, ok)
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

// textUpTo reads up to the closing quote.
func textUpTo(b []byte, ok bool) (value, rest []byte, _ bool) {
	if i := bytes.IndexByte(b, '"'); ok && i >= 0 {
		return b[:i], b[i+1:], true
	}
	return nil, nil, false
}

// after skips a prefix that must be there.
func after(b, prefix []byte, ok bool) ([]byte, bool) {
	if !ok || !bytes.HasPrefix(b, prefix) {
		return nil, false
	}
	return b[len(prefix):], true
}
