package domain

import "testing"

func TestAllotments(t *testing.T) {
	stories(t, map[string]string{
		"a billion in one event": `
			0  create_campaign codes=1000000000
			0  claim customer_id=ann                          => claimed n=1
			0  allot count=1000000000 batch=too-many          => sold_out message=999999999
			0  allot count=0 batch=none                       => invalid message=count:
			0  allot count=999999998 batch=flyer              => allotted n=2 batch=flyer events=allotted
			0  claim customer_id=bob                          => claimed n=1e+09 events=claimed,sold_out
			0  allot count=1 batch=late                       => sold_out
			0  redeem campaign=s n=999999999 order_id=o customer_id=cy => redeemed customer_id=cy
			0  redeem code=$1 order_id=o customer_id=ann      => redeemed n=1
			0  redeem code=$1e+09 order_id=o                  => redeemed n=1e+09`,
		"the same batch": `
			0  create_campaign codes=9
			0  allot id=x count=2 batch=flyer                 => allotted n=1
			0  allot count=2 batch=flyer                      => allotted n=1 count=2 repeat
			0  allot id=x count=2 batch=flyer                 => allotted n=1 count=2 repeat
			0  allot count=3 batch=flyer                      => batch_exists
			0  allot id=x count=2 batch=poster                => idempotency_key_reused
			0  allot id=x count=3 batch=flyer                 => idempotency_key_reused
			0  end_campaign
			0  allot count=2 batch=flyer                      => allotted repeat
			0  allot count=2 batch=poster                     => campaign_ended`,
		"its window": `
			0  create_campaign codes=9 opens_at=+1m expires_at=+2m
			0  allot count=1 batch=a                          => allotted expires_at=+2m
			0  pause_campaign
			0  allot count=1 batch=b                          => campaign_paused
			0  resume_campaign
			2m allot count=1 batch=b                          => claim_closed
			0  create_campaign campaign=i codes=0
			0  allot campaign=i count=1 batch=a               => invalid message=imported`,
		"valid_for counts from the allotment, and expiries are counted": `
			0  create_campaign codes=9 valid_for=1m
			0  allot count=5 batch=a                          => allotted expires_at=+1m
			30s claim customer_id=ann                         => claimed n=6 expires_at=+90s
			30s void campaign=s n=2                           => voided expires_at=+1m
			30s extend campaign=s n=3 expires_at=+2m          => extended
			30s redeem campaign=s n=4 order_id=o              => redeemed
			59s redeem campaign=s n=5 order_id=o              => redeemed
			59s rollback campaign=s n=5 order_id=o            => rolled_back
			1m redeem campaign=s n=1 order_id=o               => expired
			1m expire through=+1m                             => expired count=2
			2m expire through=+2m                             => expired count=2`,
		"an end that moves, uses that grow": `
			0  create_campaign codes=9 expires_at=+1m
			0  allot count=3 batch=a
			0  redeem campaign=s n=1 order_id=o               => redeemed
			0  update_campaign max_redemptions=2 expires_at=+2m
			1m expire through=+1m                             => expired
			2m expire through=+2m                             => expired count=3`,
		"the holder is the first who is named": `
			0  create_campaign codes=9 max_redemptions=3
			0  allot count=2 batch=a
			0  claim customer_id=ann                          => claimed n=3
			0  remind customer_id=bob kind=expires before=1m  => not_holder
			0  redeem campaign=s n=1 order_id=a               => redeemed
			0  redeem campaign=s n=1 order_id=b customer_id=ann => redeemed
			0  redeem campaign=s n=1 order_id=c customer_id=bob => not_holder
			0  rollback campaign=s n=1 order_id=b customer_id=bob => not_holder
			0  rollback campaign=s n=1 order_id=b customer_id=ann => rolled_back
			0  redeem campaign=s n=1 order_id=b customer_id=bob => not_holder
			0  void campaign=s n=1
			0  claim customer_id=ann                          => claimed n=3 repeat
			0  claim customer_id=bob                          => claimed n=4 events=claimed`,
	})
}
