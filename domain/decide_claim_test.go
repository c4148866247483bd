package domain

import (
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

func TestClaim(t *testing.T) {
	stories(t, map[string]string{
		"codes may grow, and sell out again": `
			0 create_campaign codes=1
			0 claim customer_id=ann
			0 update_campaign codes=2                 => updated events=updated
			0 claim customer_id=bob                   => claimed n=2 events=claimed,sold_out
			0 update_campaign codes=1                 => invalid message=codes:
			0 claim customer_id=cy                    => sold_out`,
		"several per customer": `
			0 create_campaign codes=9 per_customer=2
			0 claim customer_id=ann id=a              => claimed n=1
			0 claim customer_id=bob                   => claimed n=2
			0 claim customer_id=ann id=b              => claimed n=3
			0 claim customer_id=ann id=c              => claim_limit_reached
			0 claim customer_id=ann id=a              => claimed n=1 code=$1 repeat
			0 update_campaign per_customer=3
			0 claim customer_id=ann id=c              => claimed n=4
			0 claim customer_id=ann id=d              => claim_limit_reached`,
		"the window": `
			0   create_campaign codes=9 opens_at=+1m closes_at=+2m expires_at=+3m
			0   claim customer_id=ann                 => claim_not_open
			59s claim customer_id=ann                 => claim_not_open
			1m  claim customer_id=ann                 => claimed expires_at=+3m
			2m  claim customer_id=bob                 => claim_closed
			3m  claim customer_id=ann                 => claimed repeat`,
		"without a closing time the end closes": `
			0  create_campaign codes=9 expires_at=+1m
			59s claim customer_id=ann                 => claimed
			1m claim customer_id=bob                  => claim_closed`,
		"the order of the checks": `
			0  claim customer_id=ann                              => campaign_not_found
			0  create_campaign codes=1 opens_at=+1m closes_at=+2m per_customer=2
			0  claim customer_id=ann                              => claim_not_open
			1m claim customer_id=ann id=a                         => claimed
			1m claim customer_id=ann                              => sold_out
			1m update_campaign per_customer=1
			1m update_campaign per_customer=2
			1m claim customer_id=bob id=a                         => idempotency_key_reused
			1m remind customer_id=bob kind=opens before=1m id=a   => idempotency_key_reused
			2m claim customer_id=ann                              => claim_closed
			2m pause_campaign
			2m claim customer_id=ann                              => campaign_paused
			2m end_campaign
			2m claim customer_id=ann                              => campaign_ended
			2m claim customer_id=ann id=a                         => claimed repeat
			2m claim customer_id=bob id=a                         => idempotency_key_reused`,
	})
}

func TestValidity(t *testing.T) {
	stories(t, map[string]string{
		"rounded up to the second": `
			0      create_campaign codes=9 valid_for=90s
			0      claim customer_id=a    => claimed expires_at=+90s
			1us    claim customer_id=b    => claimed expires_at=+91s
			1s     claim customer_id=c    => claimed expires_at=+91s
			1001ms claim customer_id=d    => claimed expires_at=+92s`,
		"from one hour on to the minute": `
			0      create_campaign codes=9 valid_for=1h
			0      claim customer_id=a    => claimed expires_at=+1h
			1us    claim customer_id=b    => claimed expires_at=+61m
			60s    claim customer_id=c    => claimed expires_at=+61m
			61s    claim customer_id=d    => claimed expires_at=+62m
			61s    update_campaign valid_for=59m59s
			61s    claim customer_id=e    => claimed expires_at=+61m
			61s    update_campaign valid_for=1500ms
			61s    claim customer_id=f    => claimed expires_at=+63s`,
		"an inherited end moves with the campaign": `
			0  create_campaign codes=9 expires_at=+1m
			0  claim customer_id=a                   => claimed expires_at=+1m
			1m redeem code=$1 order_id=o             => expired
			1m update_campaign expires_at=+3m
			1m redeem code=$1 order_id=o             => redeemed expires_at=+3m
			1m update_campaign expires_at=null
			9h claim customer_id=b                   => claimed
			9h redeem code=$2 order_id=o             => redeemed`,
		"an end of its own does not": `
			0  create_campaign codes=9 valid_for=1m
			0  claim customer_id=a
			0  update_campaign valid_for=10m
			0  claim customer_id=b                   => claimed expires_at=+10m
			1m redeem code=$1 order_id=o             => expired`,
		"the year 9999": `
			0  create_campaign codes=9 expires_at=9999-12-31T23:59:59.999999Z
			0  claim customer_id=a                   => claimed expires_at=9999-12-31T23:59:59.999999Z
			0  extend code=$1 expires_at=9999-12-31T23:59:59Z => extended
			0  extend code=$1 expires_at=10000-01-01T00:00:00Z => invalid message=expires_at:`,
	})
	l := testLane()
	last := wire.MaxInstant - 10
	s := wire.DefaultSettings(5)
	s.ValidFor = 72 * 3600 * 1e9
	create := wire.Command{Type: wire.CreateCampaign, ID: "c", Campaign: "s", Patch: wire.PatchOf(s)}
	l.Decide(&create, last, nil)
	claim := wire.Command{Type: wire.Claim, ID: "a", Campaign: "s", CustomerID: "ann"}
	if _, out := l.Decide(&claim, last, nil); out.ExpiresAt != wire.MaxInstant {
		t.Fatalf("a coupon that would outlive the year 9999: %s", outcomeText(out))
	}
	if read := readLane(t, snapshot(t, l)); string(snapshot(t, read)) != string(snapshot(t, l)) {
		t.Fatal("an irregular expiry does not survive a snapshot")
	}
}
