package timers

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/lanetest"
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

// Timers folded the short way and through the parser are the same timers.
func TestClaimsFoldedTheShortWay(t *testing.T) {
	short, parsed := New(""), New("")
	for _, name := range []string{"a", "b"} {
		for _, b := range []*Timers{short, parsed} {
			if _, err := b.Fold(&wire.Event{Type: wire.CampaignCreated, Campaign: name}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var reader claimReader
	taken := 0
	for i, line := range claimLines() {
		var ev wire.Event
		if err := wire.ParseEvent(line, &ev); err != nil {
			continue
		}
		if !reader.fold(short, line) {
			if _, err := short.Fold(&ev); err != nil {
				t.Fatal(err)
			}
		} else {
			taken++
		}
		if _, err := parsed.Fold(&ev); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			sameTimers(t, fmt.Sprint("after line ", i), short, parsed)
		}
	}
	sameTimers(t, "in the end", short, parsed)
	if taken == 0 || reader.fold(New(""), claimLines()[1]) {
		t.Errorf("%d lines folded the short way; one of an unknown campaign must not be", taken)
	}
}

func sameTimers(t *testing.T, when string, a, b *Timers) {
	t.Helper()
	var one, two bytes.Buffer
	if err := a.Write(&one); err != nil {
		t.Fatal(err)
	}
	if err := b.Write(&two); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) || a.instants != b.instants {
		t.Fatalf("%s the timers are different", when)
	}
}

func BenchmarkFoldClaim(b *testing.B) {
	ev := wire.Event{
		Type: wire.CouponClaimed, Campaign: "summer", At: start, ID: "0193a3c4-7f6d-7d0e-8a51-2f1f5f0f4c11", N: 1, Code: "7KQ2-9F3M-XW4T",
		CustomerID: "customer-000017", Attributes: []byte(`{"city":"Ulm"}`), ExpiresAt: start + seconds(3600),
	}
	line := ev.AppendJSON(nil)
	bk := New("")
	if _, err := bk.Fold(&wire.Event{Type: wire.CampaignCreated, Campaign: "summer"}); err != nil {
		b.Fatal(err)
	}
	b.Run("short", func(b *testing.B) {
		var reader claimReader
		b.ReportAllocs()
		for b.Loop() {
			if !reader.fold(bk, line) {
				b.Fatal("not taken")
			}
		}
	})
	b.Run("parsed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := wire.ParseEvent(line, &ev); err != nil {
				b.Fatal(err)
			}
			if _, err := bk.Fold(&ev); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Lines passed over unread are those that change nothing.
func TestLinesOfNoConcern(t *testing.T) {
	s := lanetest.New()
	var events []wire.Event
	do := func(format string, args ...any) {
		events = append(events, s.Do(t, start, format, args...)...)
	}
	do(`"type":"create_campaign","campaign":"a","codes":5,"max_redemptions":2`)
	do(`"type":"create_campaign","campaign":"b","codes":5,"valid_for":"1h"`)
	do(`"type":"create_campaign","campaign":"i","codes":0`)
	do(`"type":"import_codes","campaign":"i","codes":["ABC","DEF"]`)
	do(`"type":"claim","campaign":"a","customer_id":"x"`)
	code := events[len(events)-1].Code
	do(`"type":"claim","campaign":"b","customer_id":"x"`)
	do(`"type":"redeem","code":%q,"order_id":"o"`, code)
	do(`"type":"rollback","code":%q,"order_id":"o"`, code)
	do(`"type":"extend","code":%q,"expires_at":%q`, code, start+seconds(60))
	do(`"type":"remind","campaign":"a","customer_id":"x","kind":"expires","before":"1s"`)
	do(`"type":"void","code":%q,"reason":"r"`, code)
	events = append(events, wire.Event{Type: wire.CommandsRefused, At: start}, wire.Event{Type: wire.CommandRejected, At: start})
	concern := map[wire.EventType]bool{}
	for i := range events {
		concern[events[i].Type] = !New("").FoldLine(events[i].AppendJSON(nil))
	}
	for _, typ := range []wire.EventType{wire.CampaignCreated, wire.CouponClaimed, wire.CouponExtended, wire.ReminderSet, wire.ReminderCancelled} {
		if concern[typ] != true {
			t.Errorf("%s is passed over", typ)
		}
	}
	for _, typ := range []wire.EventType{wire.CodesImported, wire.CouponRedeemed, wire.CouponRolledBack, wire.CouponVoided, wire.CommandsRefused, wire.CommandRejected} {
		if read, there := concern[typ]; read || !there {
			t.Errorf("%s is read (%t) or was not made (%t)", typ, read, !there)
		}
	}
	if !New("").FoldLine(events[4].AppendJSON(nil)) || New("").FoldLine([]byte(`{"campaign":"a","type":"coupon.redeemed"}`)) {
		t.Error("a claim that inherits is read, or a line written in another way is not")
	}
}
