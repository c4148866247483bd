package domain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// TestARepeatNeverClaimsWhatIsOver: what each command answers under an id that was accepted, when what it did is undone.
func TestARepeatNeverClaimsWhatIsOver(t *testing.T) {
	stories(t, map[string]string{
		"two orders, one coupon": `
			0 create_campaign codes=9
			0 claim customer_id=ann
			0 redeem code=$1 order_id=o1 id=k            => redeemed
			0 redeem code=$1 order_id=o1 id=k            => redeemed repeat
			0 rollback code=$1 order_id=o1 id=b          => rolled_back
			0 redeem code=$1 order_id=o1 id=k            => redemption_rolled_back message=o1
			0 redeem code=$1 order_id=o1 id=k            => redemption_rolled_back message=new
			0 redeem code=$1 order_id=o2 id=k2           => redeemed
			0 redeem code=$1 order_id=o1 id=k            => redemption_rolled_back
			0 rollback code=$1 order_id=o2               => rolled_back
			0 redeem code=$1 order_id=o1 id=k3           => redeemed events=redeemed
			0 redeem code=$1 order_id=o1 id=k            => redeemed repeat
			0 rollback code=$1 order_id=o1 id=b          => outdated message=new
			0 rollback code=$1 order_id=o1 id=b2         => rolled_back events=rolled_back
			0 rollback code=$1 order_id=o1 id=b          => rolled_back repeat
			0 redeem code=$1 order_id=o1 id=k3           => redemption_rolled_back`,
		"a coupon that may be redeemed often": `
			0 create_campaign codes=9 max_redemptions=20
			0 claim customer_id=ann
			0 redeem code=$1 order_id=o1 id=k1           => redeemed redeemed_count=1
			0 redeem code=$1 order_id=o2 id=k2           => redeemed redeemed_count=2
			0 rollback code=$1 order_id=o1               => rolled_back
			0 redeem code=$1 order_id=o1 id=k1           => redemption_rolled_back
			0 redeem code=$1 order_id=o2 id=k2           => redeemed redeemed_count=2 repeat`,
		"what the coupon is by now": `
			0  create_campaign codes=9 expires_at=+1h
			0  claim customer_id=ann id=a                => claimed coupon_status=
			0  claim customer_id=ann id=a                => claimed coupon_status= repeat
			0  redeem code=$1 order_id=o1 id=k           => redeemed coupon_status=
			0  redeem code=$1 order_id=o1 id=k           => redeemed coupon_status= repeat
			0  claim customer_id=ann id=a                => claimed coupon_status=redeemed repeat
			0  claim customer_id=ann                     => claimed coupon_status=redeemed repeat
			0  extend code=$1 expires_at=+2h id=x        => extended coupon_status=
			0  extend code=$1 expires_at=+2h id=x        => extended coupon_status=redeemed repeat
			0  rollback code=$1 order_id=o1 id=b         => rolled_back coupon_status=
			0  rollback code=$1 order_id=o1              => rolled_back coupon_status= repeat
			2h claim customer_id=ann id=a                => claimed coupon_status=expired repeat
			2h rollback code=$1 order_id=o1 id=b         => rolled_back coupon_status=expired repeat
			2h void code=$1 id=v                         => voided
			2h void code=$1 id=v                         => voided coupon_status= repeat
			2h claim customer_id=ann id=a                => claimed n=1 code=$1 coupon_status=voided repeat
			2h extend code=$1 expires_at=+2h id=x        => extended coupon_status=voided repeat`,
		"a reminder that fired, and one that was cancelled": `
			0   create_campaign codes=9 opens_at=+10m expires_at=+48h
			0   remind customer_id=ann kind=opens before=1m id=r        => reminder_set
			0   remind customer_id=ann kind=opens before=1m id=r        => reminder_set repeat
			0   unremind customer_id=ann kind=opens before=1m id=u      => reminder_cancelled
			0   remind customer_id=ann kind=opens before=1m id=r        => outdated message=new
			0   unremind customer_id=ann kind=opens before=1m id=u      => reminder_cancelled repeat
			0   remind customer_id=ann kind=opens before=1m id=r2       => reminder_set
			0   remind customer_id=ann kind=opens before=1m id=r        => reminder_set repeat
			0   unremind customer_id=ann kind=opens before=1m id=u      => outdated message=new
			9m  remind_due kind=opens due_at=+9m through_r=9            => reminder_set count=1
			9m  remind customer_id=ann kind=opens before=1m id=r2       => outdated
			9m  unremind customer_id=ann kind=opens before=1m id=u      => reminder_cancelled repeat
			10m claim customer_id=ann
			10m remind customer_id=ann kind=expires before=1h id=e      => reminder_set
			10m redeem code=$1 order_id=o1
			10m remind customer_id=ann kind=expires before=1h id=e      => outdated
			10m rollback code=$1 order_id=o1
			10m remind customer_id=ann kind=expires before=1h id=e      => reminder_set repeat`,
		"a campaign that was changed since": `
			0 create_campaign codes=9 id=c
			0 update_campaign category=food id=u1                       => updated
			0 update_campaign category=food id=u1                       => updated repeat
			0 update_campaign category=toys id=u1                       => outdated message=new
			0 update_campaign category=toys id=u2                       => updated
			0 update_campaign category=food id=u1                       => outdated
			0 create_campaign codes=9 id=c                              => created repeat
			0 pause_campaign id=p                                       => paused
			0 resume_campaign id=r                                      => resumed
			0 pause_campaign id=p                                       => outdated message=active
			0 pause_campaign id=p2                                      => paused
			0 pause_campaign id=p                                       => paused repeat
			0 resume_campaign id=r                                      => outdated message=paused
			0 end_campaign id=e                                         => ended
			0 pause_campaign id=p                                       => outdated message=ended
			0 end_campaign id=e                                         => ended repeat`,
	})
}

// TestAVoidCouponIsReplaced: void coupons do not count against per_customer.
func TestAVoidCouponIsReplaced(t *testing.T) {
	one := `
		0 create_campaign codes=5
		0 claim customer_id=ann id=a                 => claimed n=1
		0 claim customer_id=bob                      => claimed n=2
		0 void code=$1
		0 claim customer_id=ann id=a                 => claimed n=1 coupon_status=voided repeat
		0 remind customer_id=ann kind=expires before=1h => voided
		0 claim customer_id=ann id=again             => claimed n=3 events=claimed
		0 claim customer_id=ann                      => claimed n=3 repeat
		0 claim customer_id=ann id=a                 => claimed n=1 coupon_status=voided repeat
		0 claim customer_id=bob                      => claimed n=2 repeat
		0 void code=$3
		0 void code=$1                               => voided repeat
		0 claim customer_id=ann                      => claimed n=4
		0 redeem code=$4 order_id=o1                 => redeemed
		0 redeem code=$1 order_id=o1                 => voided
		0 claim customer_id=ann                      => claimed n=4 coupon_status=redeemed repeat
		0 pause_campaign
		0 void code=$4
		0 claim customer_id=ann                      => campaign_paused
		0 resume_campaign
		0 claim customer_id=cy                       => claimed n=5
		0 claim customer_id=ann                      => sold_out`
	two := `
		0 create_campaign codes=9 per_customer=2
		0 claim customer_id=ann
		0 claim customer_id=ann
		0 claim customer_id=ann                      => claim_limit_reached
		0 void code=$1
		0 claim customer_id=ann                      => claimed n=3
		0 claim customer_id=ann                      => claim_limit_reached
		0 void code=$3
		0 claim customer_id=ann                      => claimed n=4
		0 void code=$4
		0 update_campaign per_customer=1
		0 claim customer_id=ann                      => claimed n=2 repeat
		0 update_campaign per_customer=2
		0 claim customer_id=ann                      => claimed n=5
		0 claim customer_id=ann                      => claim_limit_reached`
	// What each claim replaces, in their order.
	for story, want := range map[string]string{one: "0 0 1 3 0", two: "0 0 0 3 4"} {
		for _, scanned := range []uint8{0, 2, linearScanLimit} {
			s := newScript(t)
			s.lane.scanLimit = scanned
			s.run(story)
			folded := testLane()
			var got []string
			for line := range strings.Lines(string(s.step.Events)) {
				var ev wire.Event
				if err := wire.ParseEvent([]byte(line), &ev); err != nil {
					t.Fatal(err)
				}
				if err := folded.Apply(&ev); err != nil {
					t.Fatal(err)
				}
				if ev.Type == wire.CouponClaimed {
					got = append(got, fmt.Sprint(ev.Replaces))
				}
			}
			if got := strings.Join(got, " "); got != want {
				t.Errorf("the claims replace %s, want %s", got, want)
			}
			compareDerived(t, s.lane, folded)
			compareDerived(t, s.lane, readLane(t, snapshot(t, s.lane)))
		}
	}
	l := laneWithCoupon(t)
	for _, ev := range []wire.Event{
		{Type: wire.CouponClaimed, Campaign: "s", N: 2, CustomerID: "ann", Replaces: 1},
		{Type: wire.CouponClaimed, Campaign: "s", N: 2, CustomerID: "bob", Replaces: 1},
	} {
		if err := l.Apply(&ev); err == nil {
			t.Errorf("%+v is applied, though coupon 1 is not void", ev)
		}
	}
}
