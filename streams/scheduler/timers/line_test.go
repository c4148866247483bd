package timers

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// claimLines are claims as lanes write them, and lines that look like them.
func claimLines() (lines [][]byte) {
	attributes := [][]byte{nil, []byte(`{"city":"Ulm"}`), []byte(`{"n":7,"expires_at":"2030-01-01T00:00:00Z"}`), []byte(`{"a":"\"n\":9"}`), []byte(`{"x":true}`)}
	for i, customer := range []string{"x", `a"b`, `a\`, `"n":5,"expires_at":"2031-01-01T00:00:00Z"`, "ü€", "}", `,"expires_at":"`} {
		for j, attribute := range attributes {
			for k, id := range []string{"c-1", `id"`, `","n":3,"code":"`, ""} {
				for l, expires := range []wire.Instant{0, start, start + 1, start + 500000, 253402300799_999999, 63072000_000000} {
					ev := wire.Event{
						Type: wire.CouponClaimed, Campaign: "a", At: start, ID: id, N: uint32(i*100 + j*10 + k + 1), Code: "7KQ2-9F3M-XW4T",
						CustomerID: customer, Attributes: attribute, ExpiresAt: expires,
					}
					if l == 5 {
						ev.N = 4_000_000_000
					}
					lines = append(lines, ev.AppendJSON(nil))
				}
			}
		}
	}
	extended := wire.Event{Type: wire.CouponExtended, Campaign: "a", At: start, ID: "c", N: 3, Code: "X", ExpiresAt: start}
	return append(lines, extended.AppendJSON(nil),
		[]byte(`{"campaign":"a","type":"coupon.claimed","at":"2027-01-15T08:00:00Z","n":3,"expires_at":"2027-01-15T08:00:00Z"}`),
		[]byte(`{"type":"coupon.claimed","campaign":"a","at":"2027-01-15T08:00:00Z","id":"c","n":012,"code":"X","expires_at":"2027-01-15T08:00:00Z"}`),
		[]byte(`{"type":"coupon.claimed","campaign":"a","at":"2027-01-15T08:00:00Z","id":"c","n":12,"code":"X","expires_at":"soon"}`),
	)
}

// A claim read the short way has what the parser has, whatever is done to the line.
func TestClaimsReadTheShortWay(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	short := 0
	check := func(line []byte) {
		t.Helper()
		campaign, n, stamp, ok := wire.ClaimParts(line)
		if !ok {
			return
		}
		short++
		at, err := wire.ParseInstant(string(stamp))
		if err != nil {
			return // parsed instead
		}
		var ev wire.Event
		if wire.ParseEvent(line, &ev) != nil {
			return // not a line that a lane writes
		}
		if ev.Type != wire.CouponClaimed || ev.Campaign != string(campaign) || ev.N != n || ev.ExpiresAt != at {
			t.Errorf("%s\nread as coupon %d of %s until %s", line, n, campaign, at)
		}
	}
	lines := claimLines()
	for _, line := range lines {
		check(line)
	}
	if short < 40 { // most have a quote or a backslash in a text
		t.Errorf("only %d of %d lines are read the short way", short, len(lines))
	}
	pieces := [][]byte{[]byte(`"`), []byte(`\`), []byte(`{`), []byte(`}`), []byte(`,"n":8`), []byte(`,"expires_at":"2031-01-01T00:00:00Z"`), []byte("é"), []byte("0")}
	for range 20000 {
		line := bytes.Clone(lines[rng.IntN(len(lines))])
		switch i := rng.IntN(len(line)); rng.IntN(3) {
		case 0:
			line[i] = byte(32 + rng.IntN(96))
		case 1:
			line = append(line[:i], line[min(i+1+rng.IntN(10), len(line)):]...)
		default:
			piece := pieces[rng.IntN(6)]
			if bytes.HasPrefix(piece, []byte(",")) {
				continue // a field that is there twice is no line of ours
			}
			line = append(line[:i:i], append(bytes.Clone(piece), line[i:]...)...)
		}
		check(line)
	}
}
