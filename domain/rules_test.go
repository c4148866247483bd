package domain

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// TestRules are boundaries and messages of the rules. Which answer comes first where several hold, the model's property test
// decides.
func TestRules(t *testing.T) {
	stories(t, map[string]string{
		"the last code sells out, and codes may grow": `
			0 create_campaign codes=1
			0 claim customer_id=ann                   => claimed n=1 events=claimed,sold_out
			0 update_campaign codes=2                 => updated events=updated
			0 claim customer_id=bob                   => claimed n=2 events=claimed,sold_out
			0 update_campaign codes=1                 => invalid message=codes:
			0 claim customer_id=cy                    => sold_out`,
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
		"create what cannot be": `
			1h create_campaign codes=9 expires_at=+1h                     => invalid message=expires_at:
			1h create_campaign codes=9 closes_at=+1h                      => invalid message=closes_at:
			1h create_campaign codes=9 opens_at=+2h expires_at=+2h        => invalid message=expires_at:
			1h create_campaign codes=9 opens_at=+2h closes_at=+2h         => invalid message=closes_at:
			1h create_campaign codes=9 closes_at=+4h expires_at=+3h       => invalid message=closes_at:
			1h create_campaign codes=9 valid_for=1h expires_at=+3h        => invalid message=valid_for:
			1h create_campaign codes=9 opens_at=+0s closes_at=+3h expires_at=+3h => created`,
		"an update of something else keeps an end that is past": `
			0  create_campaign codes=9 expires_at=+1h
			2h update_campaign category=food                 => updated
			2h update_campaign expires_at=+2h                => invalid message=expires_at:
			2h update_campaign expires_at=+3h                => updated
			2h update_campaign opens_at=+2h closes_at=+1h    => invalid message=closes_at:`,
		"only the version that was read": `
			0 create_campaign codes=9
			0 update_campaign category=food if_version=$v    => updated
			0 update_campaign category=toys if_version=$v0   => version_mismatch message=if_version:
			0 update_campaign category=food if_version=$v0   => updated repeat
			0 pause_campaign if_version=$v0                  => version_mismatch
			0 pause_campaign if_version=$v id=p              => paused
			0 pause_campaign if_version=$v0 id=p             => paused repeat
			0 pause_campaign if_version=$v0                  => paused repeat
			0 update_campaign category=toys if_version=$v0   => version_mismatch
			0 resume_campaign if_version=$v                  => resumed
			0 claim customer_id=ann
			0 update_campaign category=null if_version=$v    => updated
			0 update_campaign category=toys if_version=$v0   => updated
			0 end_campaign if_version=$v                     => ended
			0 end_campaign if_version=$v0                    => ended repeat
			0 update_campaign category=none if_version=$v0   => campaign_ended`,
		"need their campaign, and forgive": `
			0 create_campaign codes=0 prefix=IGN
			0 import_codes codes=SUMMER-10,SUMMER-11
			0 claim customer_id=ann                          => claimed code=SUMMER-10
			0 redeem code=SUMMER-10 order_id=o               => code_not_found message=campaign
			0 redeem code=summer10 order_id=o campaign=s     => redeemed n=1 code=SUMMER-10
			0 redeem code=SUMMER-11 order_id=o campaign=s    => code_not_found
			0 redeem code=SUMMER-12 order_id=o campaign=s    => code_not_found`,
		"by campaign and number": `
			0  create_campaign codes=3 prefix=SUN max_redemptions=2 expires_at=+1h
			0  create_campaign codes=0 campaign=t
			0  import_codes codes=SHOP-0001 campaign=t
			0  void campaign=s n=1                           => code_not_found message=number
			0  void campaign=nowhere n=1                     => code_not_found
			0  claim customer_id=ann
			0  claim customer_id=bob campaign=t
			0  redeem campaign=s n=1 order_id=o              => redeemed n=1 code=$1 events=redeemed
			0  redeem code=$1 order_id=o                     => redeemed n=1 repeat
			0  redeem campaign=s n=1 order_id=o customer_id=bob => not_holder
			0  rollback campaign=s n=1 order_id=o id=back    => rolled_back code=$1 events=rolled_back
			0  rollback code=$1 order_id=o id=back           => rolled_back repeat
			0  extend campaign=t n=1 expires_at=+2h          => extended n=1 code=SHOP-0001
			0  void campaign=t n=1 reason=lost               => voided code=SHOP-0001
			0  void campaign=t n=2                           => code_not_found
			0  void campaign=s n=1000000000                  => code_not_found
			1h redeem campaign=s n=1 order_id=p              => expired`,
		"not among generated ones": `
			0 create_campaign codes=1
			0 import_codes codes=ABC-12345                   => invalid message=campaign:
			0 create_campaign codes=0 campaign=t
			0 update_campaign codes=5 campaign=t             => invalid message=codes:`,
		"not malformed": `
			0 create_campaign codes=0
			0 import_codes codes=ok-1,---                    => invalid message=codes:
			0 import_codes codes=ab                          => invalid message=codes:
			0 import_codes codes=ok-1                        => invalid message=codes:
			0 import_codes codes=short-1 weak_codes=false    => invalid message=codes:
			0 import_codes codes=ok-1 weak_codes=true        => imported count=1
			0 import_codes codes=ok-45678                    => invalid message=codes:
			0 import_codes codes=ok-345678                   => imported count=1`,
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
		"an extension lies in the future": `
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
	})
}

// TestNothingOutlivesTheYear9999: what would is cut off, and a snapshot keeps it.
func TestNothingOutlivesTheYear9999(t *testing.T) {
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

func TestCodesAreForgivingAboutHowTheyAreTyped(t *testing.T) {
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

// TestManyActsOfACouponAreIndexed: a coupon may be extended any number of times.
func TestManyActsOfACouponAreIndexed(t *testing.T) {
	s := newScript(t)
	s.run("0 create_campaign codes=2\n0 claim customer_id=ann")
	for i := range manyActs + 1 {
		s.line(fmt.Sprintf("0 extend code=$1 expires_at=+%dh", i+1))
	}
	s.run(`
		0 redeem code=$1 order_id=o1 => redeemed
		0 redeem code=$1 order_id=o1 => redeemed repeat
		0 rollback code=$1 order_id=o2 => not_redeemed`)
	if s.lane.campaigns["s"].indexes.orders == nil {
		t.Error("its acts are still walked one by one")
	}
}

// TestRollbacksAreBounded: each pair of redemption and rollback stays in the log for ever.
func TestRollbacksAreBounded(t *testing.T) {
	s := newScript(t)
	s.run("0 create_campaign codes=2\n0 claim customer_id=ann")
	pair := func(i int) {
		s.line(fmt.Sprintf("0 redeem code=$1 order_id=o%d => redeemed redeemed_count=1", i))
		s.line(fmt.Sprintf("0 rollback code=$1 order_id=o%d => rolled_back", i))
	}
	for i := range wire.MaxRollbacks - 1 {
		pair(i)
	}
	read, err := ReadLane(LaneOptions{Lanes: 1, Key: testKey}, bytes.NewReader(snapshot(t, s.lane)))
	if err != nil || read.campaigns["s"].rollbacks(1) != wire.MaxRollbacks-1 {
		t.Fatalf("a snapshot remembers %d: %v", read.campaigns["s"].rollbacks(1), err)
	}
	s.run("0 extend code=$1 expires_at=+1h") // no pair
	pair(wire.MaxRollbacks)
	s.run(`
		0 redeem code=$1 order_id=x     => limit_reached
		0 update_campaign max_redemptions=2
		0 redeem code=$1 order_id=x     => redeemed
		0 rollback code=$1 order_id=x   => rolled_back`)
	// Of a coupon with so many uses that its rollbacks cannot all be counted, they are not bounded.
	for _, c := range []struct {
		most   uint32
		answer string
	}{{maxRolled / wire.MaxRollbacks, "limit_reached"}, {maxRolled/wire.MaxRollbacks + 1, "redeemed"}, {wire.MaxRedemptions, "redeemed"}} {
		s.line(fmt.Sprintf("0 update_campaign max_redemptions=%d", c.most))
		s.lane.campaigns["s"].lastAct(1).setRollbacks(maxRolled)
		s.line(fmt.Sprintf("0 redeem code=$1 order_id=most-%d => %s", c.most, c.answer))
	}
	for _, n := range []uint32{0, 1, 65_535, 65_536, maxRolled, maxRolled + 1} {
		a := actRecord{flags: flagVoided}
		a.setRollbacks(n)
		if a.rollbacks() != min(n, maxRolled) || a.flags&flagMask != flagVoided {
			t.Errorf("of %d are kept %d, flags %b", n, a.rollbacks(), a.flags)
		}
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
		cmd  wire.Command
		at   wire.Instant
		want string
	}{
		{wire.Command{Code: s.codes["$1"]}, start, wire.StatusValid},
		{wire.Command{Code: s.codes["$1"], OrderID: "o1", CustomerID: "ann", ID: "x"}, start, wire.StatusValid},
		{wire.Command{Code: s.codes["$1"], CustomerID: "bob"}, start, string(wire.NotHolder)},
		{wire.Command{Code: s.codes["$1"]}, start + hour, string(wire.Expired)},
		{wire.Command{Code: s.codes["$2"]}, start, string(wire.AlreadyRedeemed)},
		{wire.Command{Code: s.codes["$2"], OrderID: "o1"}, start, "repeat"},
		{wire.Command{Code: "nonsense"}, start, string(wire.CodeNotFound)},
	} {
		tc.cmd.Type = wire.Redeem
		out := s.lane.Validate(&tc.cmd, tc.at)
		got := out.Status
		if out.Refused() {
			got = string(out.Refusal)
		}
		if out.N != 0 && out.RedeemedCount != out.N-1 || out.N != 0 && string(out.Benefit) != `{"off":5}` {
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

func TestOrderStatus(t *testing.T) {
	s := newScript(t)
	s.run(`
		0 create_campaign codes=9 max_redemptions=9
		0 claim customer_id=ann
		0 redeem code=$1 order_id=o1
		0 redeem code=$1 order_id=o2
		0 rollback code=$1 order_id=o1`)
	for order, want := range map[string]string{"o1": wire.StatusRolledBack, "o2": wire.StatusRedeemed, "o3": ""} {
		if got := s.lane.OrderStatus("s", 1, order); got != want {
			t.Errorf("%s is %q, want %q", order, got, want)
		}
	}
}
