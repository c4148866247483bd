package domain

import (
	"fmt"
	"strings"
	"testing"
)

// stories are run one by one, each on a lane of its own.
func stories(t *testing.T, list map[string]string) {
	for name, text := range list {
		t.Run(name, func(t *testing.T) { newScript(t).run(text) })
	}
}

func TestClaim(t *testing.T) {
	stories(t, map[string]string{
		"the next code, once per customer": `
			0  create_campaign codes=3
			0  claim customer_id=ann id=a             => claimed n=1 customer_id=ann events=claimed
			1s claim customer_id=bob                  => claimed n=2
			1s claim customer_id=ann id=a             => claimed n=1 code=$1 repeat
			1s claim customer_id=ann id=other         => claimed n=1 code=$1 repeat`,
		"the last code sells out": `
			0 create_campaign codes=1
			0 claim customer_id=ann                   => claimed n=1 events=claimed,sold_out
			0 claim customer_id=bob                   => sold_out
			0 claim customer_id=ann                   => claimed n=1 repeat`,
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
		"any number per customer": `
			0 create_campaign codes=3 per_customer=0
			0 claim customer_id=ann                   => claimed n=1
			0 claim customer_id=ann                   => claimed n=2
			0 claim customer_id=ann                   => claimed n=3
			0 claim customer_id=ann                   => sold_out`,
		"one per customer from now on: the newest is the answer": `
			0 create_campaign codes=9 per_customer=0
			0 claim customer_id=ann
			0 claim customer_id=ann
			0 update_campaign per_customer=1
			0 claim customer_id=ann                   => claimed n=2 repeat`,
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
		"the limit comes before sold out": `
			0 create_campaign codes=2 per_customer=2
			0 claim customer_id=ann
			0 claim customer_id=ann
			0 claim customer_id=ann                               => claim_limit_reached
			0 claim customer_id=bob                               => sold_out`,
		"a refused id is decided anew": `
			0  create_campaign codes=2 opens_at=+1m
			0  claim customer_id=ann id=a                         => claim_not_open
			1m claim customer_id=bob id=a                         => claimed n=1
			1m claim customer_id=ann id=a                         => idempotency_key_reused`,
		"ids belong to their campaign": `
			0 create_campaign codes=2
			0 create_campaign codes=2 campaign=t
			0 claim customer_id=ann id=a                          => claimed n=1
			0 claim customer_id=bob id=a campaign=t               => claimed n=1 campaign=t`,
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
		"below an hour to the second": `
			100ms  create_campaign codes=9 valid_for=59m59s
			100ms  claim customer_id=a    => claimed expires_at=+1h0m0s`,
		"from one hour on to the minute": `
			0      create_campaign codes=9 valid_for=1h
			0      claim customer_id=a    => claimed expires_at=+1h
			1us    claim customer_id=b    => claimed expires_at=+61m
			60s    claim customer_id=c    => claimed expires_at=+61m
			61s    claim customer_id=d    => claimed expires_at=+62m`,
		"a part of a second": `
			0      create_campaign codes=9 valid_for=1500ms
			0      claim customer_id=a    => claimed expires_at=+2s`,
		"a coupon with a life of its own falls alone": `
			0   create_campaign codes=9 valid_for=1m
			0   claim customer_id=a
			30s claim customer_id=b
			60s redeem code=$1 order_id=o => expired
			60s redeem code=$2 order_id=o => redeemed expires_at=+90s`,
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
		"an end replaces a life time and the other way round": `
			0  create_campaign codes=9 valid_for=1m
			0  update_campaign expires_at=+2h
			0  claim customer_id=a                   => claimed expires_at=+2h
			0  update_campaign valid_for=1m
			0  claim customer_id=b                   => claimed expires_at=+1m
			9h redeem code=$1 order_id=o             => redeemed
			0  update_campaign valid_for=2m expires_at=+99h => invalid message=valid_for:`,
		"never": `
			0      create_campaign codes=9
			0      claim customer_id=a               => claimed
			99999h redeem code=$1 order_id=o         => redeemed`,
		"the year 9999": `
			0  create_campaign codes=9 expires_at=9999-12-31T23:59:59.999999Z
			0  claim customer_id=a                   => claimed expires_at=9999-12-31T23:59:59.999999Z
			0  extend code=$1 expires_at=9999-12-31T23:59:59Z => extended
			0  extend code=$1 expires_at=10000-01-01T00:00:00Z => invalid message=expires_at:`,
	})
	l := testLane()
	last := maxInstant - 10
	s := DefaultSettings(5)
	s.ValidFor = 72 * 3600 * 1e9
	create := Command{Type: CreateCampaign, ID: "c", Campaign: "s", Patch: PatchOf(s)}
	l.Decide(&create, last, nil)
	claim := Command{Type: Claim, ID: "a", Campaign: "s", CustomerID: "ann"}
	if _, out := l.Decide(&claim, last, nil); out.ExpiresAt != maxInstant {
		t.Fatalf("a coupon that would outlive the year 9999: %s", outcomeText(out))
	}
	if read := readLane(t, snapshot(t, l)); string(snapshot(t, read)) != string(snapshot(t, l)) {
		t.Fatal("an odd expiry does not survive a snapshot")
	}
}

func TestRedeem(t *testing.T) {
	stories(t, map[string]string{
		"once": `
			0 create_campaign codes=9 benefit={"off":5}
			0 claim customer_id=ann
			0 redeem code=$1 order_id=o1 id=r                     => redeemed n=1 redeemed_count=1 order_id=o1 benefit=map[off:5] events=redeemed
			0 redeem code=$1 order_id=o1 id=r                     => redeemed redeemed_count=1 repeat
			0 redeem code=$1 order_id=o1 id=other                 => redeemed redeemed_count=1 repeat
			0 redeem code=$1 order_id=o2                          => already_redeemed
			0 redeem code=$1 order_id=o2 id=r                     => idempotency_key_reused`,
		"several times": `
			0 create_campaign codes=9 max_redemptions=2
			0 claim customer_id=ann
			0 redeem code=$1 order_id=o1 id=r1                    => redeemed redeemed_count=1
			0 redeem code=$1 order_id=o2                          => redeemed redeemed_count=2
			0 redeem code=$1 order_id=o3                          => redemption_limit_reached
			0 redeem code=$1 order_id=o1                          => redeemed redeemed_count=1 repeat
			0 redeem code=$1 order_id=o1 id=r1                    => redeemed redeemed_count=1 repeat`,
		"by its holder, where one is named": `
			0 create_campaign codes=9
			0 claim customer_id=ann
			0 redeem code=$1 order_id=o1 customer_id=bob          => not_holder
			0 redeem code=$1 order_id=o1 customer_id=ann          => redeemed customer_id=ann
			0 redeem code=$1 order_id=o1 customer_id=bob          => not_holder
			0 redeem code=$1 order_id=o1                          => redeemed repeat`,
		"codes that are none": `
			0 create_campaign codes=9
			0 create_campaign codes=9 campaign=t
			0 create_campaign codes=0 campaign=imp
			0 claim customer_id=ann
			0 redeem code=nonsense order_id=o                     => code_not_found
			0 redeem code=AAAA-BBBB-CCCC order_id=o               => code_not_found
			0 redeem code=$1 order_id=o campaign=t                => code_not_found
			0 redeem code=$1 order_id=o campaign=imp              => code_not_found
			0 redeem code=$1 order_id=o campaign=nowhere          => code_not_found
			0 redeem code=$1 order_id=o campaign=s                => redeemed`,
		"the order of the checks": `
			0  create_campaign codes=9 expires_at=+1h
			0  claim customer_id=ann
			0  claim customer_id=bob
			0  redeem code=$1 order_id=o1 id=r
			0  void code=$1
			0  void code=$2
			1h pause_campaign
			1h redeem code=$1 order_id=o1 id=r                    => redeemed repeat
			1h redeem code=$1 order_id=o1                         => redeemed repeat
			1h redeem code=$1 order_id=o2 customer_id=bob         => not_holder
			1h redeem code=$1 order_id=o2                         => voided
			1h redeem code=$2 order_id=o2                         => voided`,
		"paused before expired before redeemed": `
			0  create_campaign codes=9 expires_at=+1h
			0  claim customer_id=ann
			0  redeem code=$1 order_id=o1
			1h pause_campaign
			1h redeem code=$1 order_id=o2                         => campaign_paused
			1h resume_campaign
			1h redeem code=$1 order_id=o2                         => expired
			1h extend code=$1 expires_at=+2h                      => extended events=extended
			1h redeem code=$1 order_id=o2                         => already_redeemed`,
		"an ended campaign's coupons live on": `
			0 create_campaign codes=9
			0 claim customer_id=ann
			0 end_campaign
			0 redeem code=$1 order_id=o                           => redeemed`,
		"never at its end": `
			0           create_campaign codes=9 expires_at=+1h
			0           claim customer_id=ann
			0           claim customer_id=bob
			59m59.999999s redeem code=$1 order_id=o               => redeemed
			1h          redeem code=$2 order_id=o                 => expired`,
		"a clock that runs back cannot revive it": `
			0  create_campaign codes=9 expires_at=+1h
			0  claim customer_id=ann
			2h pause_campaign
			0  resume_campaign
			0  redeem code=$1 order_id=o                          => expired
			0  claim customer_id=bob                              => claim_closed`,
		"forgiving about how it is typed": `
			0 create_campaign codes=9 prefix=Sun
			0 claim customer_id=ann                               => claimed
			0 redeem code=$1 order_id=o                           => redeemed`,
	})
	s := newScript(t)
	s.run(`
		0 create_campaign codes=9 prefix=sun max_redemptions=9
		0 claim customer_id=ann`)
	code := s.codes["$1"]
	if !strings.HasPrefix(code, "SUN-") || len(code) != 18 {
		t.Fatalf("code is %s", code)
	}
	for i, typed := range []string{strings.ToLower(code), strings.ReplaceAll(code, "-", ""), code[4:], "XYZ-" + code[4:]} {
		s.line(fmt.Sprintf("0 redeem code=%s order_id=o%d => redeemed code=%s", typed, i, code))
	}
	last := code[len(code)-1]
	other := byte('A')
	if last == other {
		other = 'B'
	}
	s.line(fmt.Sprintf("0 redeem code=%s%c order_id=x => code_not_found", code[:len(code)-1], other))
}

func TestRollback(t *testing.T) {
	stories(t, map[string]string{
		"makes it usable again": `
			0 create_campaign codes=9
			0 claim customer_id=ann
			0 redeem code=$1 order_id=o1 id=r1
			0 rollback code=$1 order_id=o1 id=b                   => rolled_back events=rolled_back
			0 rollback code=$1 order_id=o1 id=b                   => rolled_back repeat
			0 rollback code=$1 order_id=o1                        => rolled_back repeat
			0 redeem code=$1 order_id=o1 id=r1                    => redeemed repeat
			0 redeem code=$1 order_id=o1 id=r2                    => redeemed redeemed_count=1 events=redeemed
			0 rollback code=$1 order_id=o1 id=b                   => rolled_back repeat
			0 redeem code=$1 order_id=o2                          => already_redeemed
			0 rollback code=$1 order_id=o1                        => rolled_back events=rolled_back
			0 redeem code=$1 order_id=o2                          => redeemed`,
		"after it expired it stays expired": `
			0  create_campaign codes=9 expires_at=+1h
			0  claim customer_id=ann
			0  redeem code=$1 order_id=o1
			1h rollback code=$1 order_id=o1                       => rolled_back events=rolled_back
			1h redeem code=$1 order_id=o2                         => expired`,
		"the order of the checks": `
			0 rollback code=nonsense order_id=o1                  => code_not_found
			0 create_campaign codes=9
			0 claim customer_id=ann
			0 rollback code=$1 order_id=o1                        => not_redeemed
			0 rollback code=$1 order_id=o1 customer_id=bob        => not_holder
			0 redeem code=$1 order_id=o1 id=r
			0 rollback code=$1 order_id=o1 id=r                   => idempotency_key_reused
			0 rollback code=$1 order_id=o1 customer_id=bob        => not_holder
			0 rollback code=$1 order_id=o2                        => not_redeemed
			0 pause_campaign
			0 rollback code=$1 order_id=o1 customer_id=ann id=b   => rolled_back customer_id=ann
			0 rollback code=$1 order_id=o1 customer_id=bob        => not_holder
			0 rollback code=$1 order_id=o2 id=b                   => idempotency_key_reused`,
		"of a void coupon": `
			0 create_campaign codes=9
			0 claim customer_id=ann
			0 redeem code=$1 order_id=o1
			0 void code=$1
			0 rollback code=$1 order_id=o1                        => rolled_back
			0 redeem code=$1 order_id=o1                          => voided`,
		"one of several": `
			0 create_campaign codes=9 max_redemptions=3
			0 claim customer_id=ann
			0 redeem code=$1 order_id=o1
			0 redeem code=$1 order_id=o2
			0 redeem code=$1 order_id=o3
			0 rollback code=$1 order_id=o2                        => rolled_back redeemed_count=2
			0 redeem code=$1 order_id=o1                          => redeemed redeemed_count=1 repeat
			0 redeem code=$1 order_id=o2                          => redeemed redeemed_count=3
			0 redeem code=$1 order_id=o4                          => redemption_limit_reached`,
	})
}

func TestCouponRedeemedAndRolledBackOverAndOver(t *testing.T) {
	s := newScript(t)
	s.run("0 create_campaign codes=2\n0 claim customer_id=ann")
	for i := range 2 * manyActs {
		s.line(fmt.Sprintf("0 redeem code=$1 order_id=o%d => redeemed redeemed_count=1", i))
		s.line(fmt.Sprintf("0 rollback code=$1 order_id=o%d => rolled_back", i))
	}
	if !s.lane.campaigns["s"].byOrder {
		t.Fatal("its acts are still walked one by one")
	}
	s.run("0 rollback code=$1 order_id=o3 => rolled_back repeat")
	s.run("0 redeem code=$1 order_id=o3 => redeemed redeemed_count=1")
	s.run("0 rollback code=$1 order_id=o3 => rolled_back events=rolled_back")
}

func TestVoidAndExtend(t *testing.T) {
	stories(t, map[string]string{
		"void is for good": `
			0 void code=nonsense                                  => code_not_found
			0 create_campaign codes=9
			0 claim customer_id=ann
			0 void code=$1 reason=stolen id=v                     => voided events=voided
			0 void code=$1 reason=stolen id=v                     => voided repeat
			0 void code=$1                                        => voided repeat
			0 redeem code=$1 order_id=o                           => voided
			0 extend code=$1 expires_at=+1h                       => voided
			0 claim customer_id=ann                               => claimed n=1 repeat
			0 claim customer_id=bob
			0 void code=$2 id=v                                   => idempotency_key_reused
			0 extend code=$2 expires_at=+1h id=v                  => idempotency_key_reused`,
		"extend": `
			0  extend code=nonsense expires_at=+1h                => code_not_found
			0  create_campaign codes=9 expires_at=+1h
			0  claim customer_id=ann
			0  claim customer_id=bob
			1h extend code=$1 expires_at=+1h                      => invalid message=expires_at:
			1h extend code=$1 expires_at=+2h id=e                 => extended expires_at=+2h events=extended
			1h extend code=$1 expires_at=+2h id=e                 => extended expires_at=+2h repeat
			1h redeem code=$2 order_id=o                          => expired
			1h redeem code=$1 order_id=o                          => redeemed
			1h extend code=$2 expires_at=+2h id=e                 => idempotency_key_reused`,
		"extend may bring the end forward": `
			0  create_campaign codes=9 expires_at=+9h
			0  claim customer_id=ann
			0  extend code=$1 expires_at=+1h
			1h redeem code=$1 order_id=o                          => expired`,
	})
}

func TestPauseResumeEnd(t *testing.T) {
	stories(t, map[string]string{
		"turning": `
			0 pause_campaign                  => campaign_not_found
			0 create_campaign codes=9
			0 resume_campaign                 => resumed repeat
			0 pause_campaign id=p             => paused events=paused
			0 pause_campaign                  => paused repeat
			0 resume_campaign id=p            => idempotency_key_reused
			0 resume_campaign                 => resumed events=resumed
			0 pause_campaign id=p             => paused repeat
			0 end_campaign                    => ended events=ended
			0 end_campaign                    => ended repeat
			0 pause_campaign                  => campaign_ended
			0 resume_campaign                 => campaign_ended
			0 pause_campaign id=p             => paused repeat
			0 update_campaign codes=10        => campaign_ended`,
		"end from paused": `
			0 create_campaign codes=9
			0 pause_campaign
			0 end_campaign                    => ended
			0 claim customer_id=ann           => campaign_ended`,
	})
}

func TestCreateAndUpdate(t *testing.T) {
	stories(t, map[string]string{
		"create": `
			0 create_campaign codes=9 category=food id=c     => created events=created
			0 create_campaign codes=9 category=food id=c     => created repeat
			0 create_campaign codes=9 category=food per_customer=1 max_redemptions=1 priority=normal => created repeat
			0 create_campaign codes=8 category=food          => campaign_exists
			0 create_campaign codes=8 category=food id=c     => idempotency_key_reused
			0 update_campaign category=toys
			0 create_campaign codes=9 category=food id=c     => created repeat
			0 create_campaign codes=9 category=food          => campaign_exists
			0 create_campaign codes=9 category=toys          => created repeat`,
		"create what cannot be": `
			1h create_campaign codes=9 expires_at=+1h                     => invalid message=expires_at:
			1h create_campaign codes=9 closes_at=+1h                      => invalid message=closes_at:
			1h create_campaign codes=9 opens_at=+2h expires_at=+2h        => invalid message=expires_at:
			1h create_campaign codes=9 opens_at=+2h closes_at=+2h         => invalid message=closes_at:
			1h create_campaign codes=9 closes_at=+4h expires_at=+3h       => invalid message=closes_at:
			1h create_campaign codes=9 valid_for=1h expires_at=+3h        => invalid message=valid_for:
			1h create_campaign codes=9 opens_at=+0s closes_at=+3h expires_at=+3h => created`,
		"update": `
			0 update_campaign codes=9                        => campaign_not_found
			0 create_campaign codes=9
			0 update_campaign category=food id=u             => updated events=updated
			0 update_campaign category=food id=u             => updated repeat
			0 update_campaign category=food                  => updated repeat
			0 update_campaign category=null                  => updated events=updated
			0 pause_campaign id=u                            => idempotency_key_reused
			1h update_campaign expires_at=+1h                => invalid message=expires_at:
			1h update_campaign opens_at=+2h closes_at=+1h    => invalid message=closes_at:
			1h update_campaign opens_at=+2h                  => updated
			1h claim customer_id=ann                         => claim_not_open
			1h update_campaign opens_at=null                 => updated
			1h claim customer_id=ann                         => claimed
			1h update_campaign closes_at=+1h                 => updated
			1h claim customer_id=bob                         => claim_closed`,
		"an update of something else keeps an end that is past": `
			0  create_campaign codes=9 expires_at=+1h
			2h update_campaign category=food                 => updated
			2h update_campaign expires_at=+2h                => invalid message=expires_at:
			2h update_campaign expires_at=+3h                => updated`,
		"how often a coupon may be redeemed": `
			0 create_campaign codes=9
			0 claim customer_id=ann
			0 redeem code=$1 order_id=o1
			0 update_campaign max_redemptions=20
			0 redeem code=$1 order_id=o2                     => redeemed redeemed_count=2
			0 redeem code=$1 order_id=o1                     => redeemed redeemed_count=1 repeat
			0 update_campaign max_redemptions=2
			0 redeem code=$1 order_id=o3                     => redemption_limit_reached
			0 update_campaign max_redemptions=1
			0 redeem code=$1 order_id=o3                     => already_redeemed`,
	})
}

func TestImportedCodes(t *testing.T) {
	stories(t, map[string]string{
		"in the order they came": `
			0 import_codes codes=ABC-1                       => campaign_not_found
			0 create_campaign codes=0
			0 claim customer_id=ann                          => sold_out
			0 import_codes codes=abc-1,ABC1,xyz_2 id=i       => imported count=2 events=imported
			0 import_codes codes=abc-1,ABC1,xyz_2 id=i       => imported count=2 repeat
			0 import_codes codes=A-B-C-1                     => imported repeat
			0 pause_campaign id=i                            => idempotency_key_reused
			0 claim customer_id=ann                          => claimed n=1 code=ABC-1 events=claimed
			0 claim customer_id=bob                          => claimed n=2 code=XYZ_2 events=claimed,sold_out
			0 claim customer_id=cy                           => sold_out
			0 import_codes codes=NEW-3                       => imported count=1
			0 claim customer_id=cy                           => claimed n=3 code=NEW-3
			0 end_campaign
			0 import_codes codes=NEW-4                       => campaign_ended`,
		"need their campaign, and forgive": `
			0 create_campaign codes=0 prefix=IGN
			0 import_codes codes=SUMMER-10,SUMMER-11
			0 claim customer_id=ann                          => claimed code=SUMMER-10
			0 redeem code=SUMMER-10 order_id=o               => code_not_found
			0 redeem code=summer10 order_id=o campaign=s     => redeemed n=1 code=SUMMER-10
			0 redeem code=SUMMER-11 order_id=o campaign=s    => code_not_found
			0 redeem code=SUMMER-12 order_id=o campaign=s    => code_not_found`,
		"may be the same in two campaigns": `
			0 create_campaign codes=0
			0 create_campaign codes=0 campaign=t
			0 import_codes codes=SAME-1
			0 import_codes codes=SAME-1 campaign=t           => imported count=1
			0 claim customer_id=ann
			0 redeem code=SAME-1 order_id=o campaign=t       => code_not_found
			0 claim customer_id=bob campaign=t
			0 redeem code=SAME-1 order_id=o campaign=t       => redeemed campaign=t`,
		"not among generated ones": `
			0 create_campaign codes=1
			0 import_codes codes=ABC-1                       => invalid message=campaign:
			0 create_campaign codes=0 campaign=t
			0 update_campaign codes=5 campaign=t             => invalid message=codes:`,
		"not malformed": `
			0 create_campaign codes=0
			0 import_codes codes=ok-1,---                    => invalid message=codes:
			0 import_codes codes=ab                          => invalid message=codes:
			0 import_codes codes=ok-1                        => imported count=1`,
	})
}

func TestExpire(t *testing.T) {
	stories(t, map[string]string{
		"one event, however many fall": `
			0  expire through=+1h                             => campaign_not_found
			0  create_campaign codes=9 expires_at=+1h
			0  claim customer_id=a
			0  claim customer_id=b
			0  claim customer_id=c
			0  redeem code=$3 order_id=o
			1h expire through=+1h                             => expired count=2 events=expired
			1h expire through=+1h                             => expired repeat
			2h expire through=+1h                             => expired repeat
			2h expire through=+2h                             => expired events=expired`,
		"never ahead of the lane's time": `
			0   create_campaign codes=9 expires_at=+1h
			0   claim customer_id=a
			59m expire through=+2h                            => expired events=expired
			59m redeem code=$1 order_id=o                     => redeemed
			1h  expire through=+2h                            => expired`,
		"own and inherited ends": `
			0   create_campaign codes=9 valid_for=10s
			0   claim customer_id=a
			1s  claim customer_id=b
			1s  update_campaign expires_at=+15s
			1s  claim customer_id=c
			2s  extend code=$2 expires_at=+12s
			10s expire through=+10s                           => expired count=1
			20s expire through=+11s                           => expired events=expired
			20s expire through=+12s                           => expired count=1
			20s expire through=+20s                           => expired count=1`,
		"what was extended falls again, what was rolled back is counted no more": `
			0  create_campaign codes=9 expires_at=+1h
			0  claim customer_id=a
			0  claim customer_id=b
			0  redeem code=$2 order_id=o
			1h expire through=+1h                             => expired count=1
			1h rollback code=$2 order_id=o
			1h extend code=$1 expires_at=+2h
			2h expire through=+2h                             => expired count=1
			2h update_campaign expires_at=+3h
			3h expire through=+3h                             => expired count=1`,
		"its id is not remembered": `
			0  create_campaign codes=9 expires_at=+1h
			0  expire through=+1m id=x                        => expired repeat=
			1h expire through=+1h id=x                        => expired events=expired
			1h claim customer_id=a id=x                       => claim_closed`,
	})
}

func TestReminders(t *testing.T) {
	stories(t, map[string]string{
		"before claims open": `
			0   remind customer_id=ann kind=opens before=1m                 => campaign_not_found
			0   create_campaign codes=9 opens_at=+10m
			0   remind customer_id=ann kind=opens before=1m id=r            => reminder_set due_at=+9m events=set
			0   remind customer_id=ann kind=opens before=1m id=r            => reminder_set due_at=+9m repeat
			0   remind customer_id=ann kind=opens before=1m                 => reminder_set due_at=+9m repeat
			0   remind customer_id=ann kind=opens before=2m id=r            => idempotency_key_reused
			0   remind customer_id=bob kind=opens before=1m id=r            => idempotency_key_reused
			0   claim customer_id=ann id=r                                  => idempotency_key_reused
			0   remind customer_id=bob kind=opens before=1m                 => reminder_set
			1m  remind_due kind=opens due_at=+9m through_r=9                => reminder_set repeat
			9m  remind_due kind=opens due_at=+9m through_r=1                => reminder_set count=1 events=due
			9m  remind_due kind=opens due_at=+9m through_r=1                => reminder_set repeat
			9m  unremind customer_id=ann kind=opens before=1m               => too_late
			9m  unremind customer_id=bob kind=opens before=1m               => reminder_cancelled events=cancelled
			9m  remind_due kind=opens due_at=+9m through_r=2                => reminder_set repeat
			9m  remind customer_id=cy kind=opens before=1m                  => too_late
			9m  remind customer_id=ann kind=opens before=1m id=r            => reminder_set repeat`,
		"claims are open already": `
			0 create_campaign codes=9
			0 remind customer_id=ann kind=opens before=1m                   => too_late`,
		"before the coupon expires": `
			0  create_campaign codes=9 expires_at=+48h per_customer=0
			0  remind customer_id=ann kind=expires before=24h               => not_holder
			0  claim customer_id=ann
			0  remind customer_id=ann kind=expires before=24h id=r          => reminder_set n=1 due_at=+24h events=set
			0  claim customer_id=ann
			0  remind customer_id=ann kind=expires before=24h id=r          => reminder_set n=1 repeat
			0  remind customer_id=ann kind=expires before=24h               => reminder_set n=2
			0  unremind customer_id=bob kind=expires before=24h             => not_holder
			24h remind_due kind=expires due_at=+24h through_r=2             => reminder_set count=2`,
		"of what never expires": `
			0 create_campaign codes=9
			0 claim customer_id=ann
			0 remind customer_id=ann kind=expires before=24h                => invalid message=kind:`,
		"cancelled": `
			0 create_campaign codes=9 opens_at=+10m
			0 unremind customer_id=ann kind=opens before=1m                 => reminder_cancelled repeat
			0 remind customer_id=ann kind=opens before=1m
			0 unremind customer_id=ann kind=opens before=1m id=u            => reminder_cancelled events=cancelled
			0 remind customer_id=ann kind=opens before=1m                   => reminder_set events=set
			0 unremind customer_id=ann kind=opens before=1m id=u            => reminder_cancelled repeat
			9m remind_due kind=opens due_at=+9m through_r=9                 => reminder_set count=1`,
		"a used coupon's reminders are cancelled in the same step": `
			0 create_campaign codes=9 expires_at=+48h max_redemptions=2
			0 claim customer_id=ann
			0 remind customer_id=ann kind=expires before=1h
			0 remind customer_id=ann kind=expires before=2h
			0 redeem code=$1 order_id=o1                                    => redeemed events=redeemed
			0 redeem code=$1 order_id=o2                                    => redeemed events=redeemed,cancelled,cancelled
			0 remind customer_id=ann kind=expires before=1h                 => already_redeemed
			0 unremind customer_id=ann kind=expires before=1h               => reminder_cancelled repeat
			47h remind_due kind=expires due_at=+47h through_r=9             => reminder_set repeat`,
		"and a void one's": `
			0 create_campaign codes=9 expires_at=+48h
			0 claim customer_id=ann
			0 remind customer_id=ann kind=expires before=1h
			0 void code=$1                                                  => voided events=voided,cancelled
			0 remind customer_id=ann kind=expires before=1h                 => voided`,
		"at most three on a coupon": `
			0 create_campaign codes=9 expires_at=+48h
			0 claim customer_id=ann
			0 remind customer_id=ann kind=expires before=1h
			0 remind customer_id=ann kind=expires before=2h
			0 remind customer_id=ann kind=expires before=3h
			0 remind customer_id=ann kind=expires before=4h                 => invalid message=before:
			0 unremind customer_id=ann kind=expires before=2h
			0 remind customer_id=ann kind=expires before=4h                 => reminder_set`,
		"re-timed by an update": `
			0   create_campaign codes=9 opens_at=+10m
			0   remind customer_id=ann kind=opens before=1m
			0   update_campaign opens_at=+20m
			9m  remind_due kind=opens due_at=+9m through_r=9                => reminder_set repeat
			19m remind_due kind=opens due_at=+19m through_r=9               => reminder_set count=1
			19m update_campaign opens_at=+40m
			39m remind_due kind=opens due_at=+39m through_r=9               => reminder_set repeat
			38m remind customer_id=ann kind=opens before=1m                 => too_late
			39m update_campaign opens_at=+50m
			39m remind customer_id=ann kind=opens before=1m                 => reminder_set due_at=+49m`,
		"re-timed by an extension": `
			0   create_campaign codes=9 expires_at=+2h
			0   claim customer_id=ann
			0   claim customer_id=bob
			0   remind customer_id=ann kind=expires before=1h
			0   remind customer_id=bob kind=expires before=1h
			0   extend code=$1 expires_at=+5h
			1h  remind_due kind=expires due_at=+1h through_r=9              => reminder_set count=1
			1h  extend code=$1 expires_at=+4h
			4h  remind_due kind=expires due_at=+4h through_r=9              => reminder_set repeat
			4h  remind_due kind=expires due_at=+3h through_r=9              => reminder_set count=1`,
		"with its opening taken away it waits": `
			0   create_campaign codes=9 opens_at=+10m
			0   remind customer_id=ann kind=opens before=1m
			0   update_campaign opens_at=null
			9m  remind_due kind=opens due_at=+9m through_r=9                => reminder_set repeat
			9m  update_campaign opens_at=+20m
			19m remind_due kind=opens due_at=+19m through_r=9               => reminder_set count=1`,
		"exactly at the instant, before=0s": `
			0   create_campaign codes=9 opens_at=+10m
			0   remind customer_id=ann kind=opens before=0s                 => reminder_set due_at=+10m
			10m remind_due kind=opens due_at=+10m through_r=1               => reminder_set count=1`,
	})
}

// dueOf runs a story that ends in one remind_due and returns what it fired and dropped.
func dueOf(t *testing.T, story string) (fired, dropped uint64) {
	s := newScript(t)
	s.run(story)
	for line := range strings.Lines(string(s.step.Events)) {
		var ev Event
		if err := ParseEvent([]byte(line), &ev); err != nil {
			t.Fatal(err)
		}
		if ev.Type == RemindersDue {
			fired, dropped = fired+ev.Fired, dropped+ev.Dropped
			if ev.FromR != 1 || ev.ThroughR != 2 {
				t.Fatalf("from %d through %d", ev.FromR, ev.ThroughR)
			}
		}
	}
	return fired, dropped
}

func TestRemindersAreDroppedAfterTheGraceOrTheEnd(t *testing.T) {
	const given = `
		0   create_campaign codes=9 opens_at=+10m
		0   remind customer_id=ann kind=opens before=1m
		0   remind customer_id=bob kind=opens before=1m
		`
	for _, tc := range []struct {
		name, then     string
		fired, dropped uint64
	}{
		{"at the grace", "14m remind_due kind=opens due_at=+9m through_r=9 => reminder_set count=2", 2, 0},
		{"after the grace", "14m0.000001s remind_due kind=opens due_at=+9m through_r=9 => reminder_set count=2", 0, 2},
		{"after the end", "0 end_campaign\n9m remind_due kind=opens due_at=+9m through_r=9 => reminder_set count=2", 0, 2},
		{"while paused", "0 pause_campaign\n9m remind_due kind=opens due_at=+9m through_r=9 => reminder_set count=2", 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if fired, dropped := dueOf(t, given+tc.then); fired != tc.fired || dropped != tc.dropped {
				t.Fatalf("fired %d, dropped %d; want %d, %d", fired, dropped, tc.fired, tc.dropped)
			}
		})
	}
}

func TestValidateSaysWhatRedeemWouldSay(t *testing.T) {
	s := newScript(t)
	s.run(`
		0 create_campaign codes=9 expires_at=+1h benefit={"off":5}
		0 claim customer_id=ann
		0 claim customer_id=bob
		0 redeem code=$2 order_id=o1`)
	before := snapshot(t, s.lane)
	for _, tc := range []struct {
		cmd  Command
		at   Instant
		want string
	}{
		{Command{Code: s.codes["$1"]}, start, StatusRedeemed},
		{Command{Code: s.codes["$1"], OrderID: "o1", CustomerID: "ann", ID: "x"}, start, StatusRedeemed},
		{Command{Code: s.codes["$1"], CustomerID: "bob"}, start, string(NotHolder)},
		{Command{Code: s.codes["$1"]}, start + hour, string(Expired)},
		{Command{Code: s.codes["$2"]}, start, string(AlreadyRedeemed)},
		{Command{Code: s.codes["$2"], OrderID: "o1"}, start, "repeat"},
		{Command{Code: "nonsense"}, start, string(CodeNotFound)},
	} {
		tc.cmd.Type = Redeem
		out := s.lane.Validate(&tc.cmd, tc.at)
		got := out.Status
		if out.Refused() {
			got = string(out.Refusal)
		} else if out.RedeemedCount != 1 || string(out.Benefit) != `{"off":5}` {
			t.Errorf("%+v: %s", tc.cmd, outcomeText(out))
		}
		if out.Repeat {
			got = "repeat"
		}
		if got != tc.want {
			t.Errorf("%+v: got %s, want %s", tc.cmd, outcomeText(out), tc.want)
		}
	}
	if string(snapshot(t, s.lane)) != string(before) {
		t.Fatal("validate changed something")
	}
}
