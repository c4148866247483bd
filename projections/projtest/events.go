package projtest

import (
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Created is the event of a new campaign, with further fields.
func Created(campaign string, number int, more string) string {
	return fmt.Sprintf(`{"type":"campaign.created","campaign":%q,"at":"@","number":%d,"codes":100000000,"max_redemptions":1%s}`, campaign, number, more)
}

// Claimed is the event of a claim.
func Claimed(campaign string, n uint32, at wire.Instant) *wire.Event {
	return &wire.Event{
		Type: wire.CouponClaimed, Campaign: campaign, At: at, ID: fmt.Sprintf("0193a7b2-7000-7000-8000-%012d", n), N: n,
		Code: fmt.Sprintf("%04X-%04X-%04d", n*7919%65536, n/7%65536, n%10000), CustomerID: fmt.Sprintf("customer-%d", n),
	}
}

// Claim writes one message of a lane with that many claims.
func (r *Rig) Claim(lane, many int) {
	r.T.Helper()
	r.Step(lane, func(at wire.Instant) (payload []byte) {
		for range many {
			r.Claims[lane]++
			payload = append(Claimed(fmt.Sprintf("c%d", lane), r.Claims[lane], at).AppendJSON(payload), '\n')
		}
		return payload
	})
}

// Work writes events of all kinds to each lane.
func (r *Rig) Work() {
	r.T.Helper()
	for lane := range Lanes {
		c := fmt.Sprintf("c%d", lane)
		act := func(kind string, n int, more string) string {
			return fmt.Sprintf(`{"type":%q,"campaign":%q,"at":"@","n":%d,"code":"x"%s}`, kind, c, n, more)
		}
		r.Write(lane, Created(c, lane, `,"expires_at":"2026-06-01T00:00:00Z","opens_at":"2026-01-01T00:00:00Z"`))
		r.Claim(lane, 8)
		r.Write(lane, act("coupon.redeemed", 1, `,"order_id":"o1","redeemed_count":1`), act("coupon.redeemed", 2, `,"order_id":"o2","redeemed_count":1`))
		r.Write(lane, act("coupon.rolled_back", 2, `,"order_id":"o2","redeemed_count":0,"status":"claimed"`), act("coupon.voided", 3, `,"reason":"fraud","status":"voided"`))
		r.Write(lane, fmt.Sprintf(`{"type":"reminder.set","campaign":%q,"at":"@","r":1,"customer_id":"customer-4","kind":"expires","before":"1h","due_at":"2026-05-31T23:00:00Z","n":4}`, c),
			fmt.Sprintf(`{"type":"reminder.set","campaign":%q,"at":"@","r":2,"customer_id":"customer-5","kind":"expires","before":"1h","due_at":"2026-05-31T23:00:00Z","n":5}`, c))
		r.Write(lane, act("coupon.extended", 4, `,"expires_at":"2026-01-01T02:00:00Z","status":"claimed"`),
			fmt.Sprintf(`{"type":"reminder.cancelled","campaign":%q,"at":"@","r":2}`, c),
			fmt.Sprintf(`{"type":"commands.refused","campaign":%q,"at":"@","counts":{"sold_out":7}}`, c),
			fmt.Sprintf(`{"type":"command.rejected","campaign":%q,"at":"@","sequence":3,"line":2,"reason":"not JSON","payload":"{"}`, c))
		r.Write(lane, act("coupon.voided", 999, `,"reason":"poison","status":"voided"`)) // of a coupon that does not exist: becomes a dead letter
		r.Claim(lane, 3)
	}
	r.Mu.Lock()
	r.Clock = r.Clock.Add(3 * time.Hour)
	r.Mu.Unlock()
	for lane := range Lanes {
		r.Write(lane, fmt.Sprintf(`{"type":"coupons.expired","campaign":"c%d","at":"@","through":"2026-01-01T02:00:00Z","count":1}`, lane))
		r.Claim(lane, 2)
	}
}
