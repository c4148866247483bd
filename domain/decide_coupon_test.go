package domain

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

func TestRedeem(t *testing.T) {
	stories(t, map[string]string{
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
	})
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
	for _, n := range []uint32{0, 1, 65_535, 65_536, maxRolled, maxRolled + 1} {
		a := actRecord{flags: flagVoided}
		a.setRollbacks(n)
		if a.rollbacks() != min(n, maxRolled) || a.flags&flagMask != flagVoided {
			t.Errorf("of %d are kept %d, flags %b", n, a.rollbacks(), a.flags)
		}
	}
}

func TestExtend(t *testing.T) {
	stories(t, map[string]string{
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
	})
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
		{wire.Command{Code: s.codes["$1"]}, start, wire.StatusRedeemed},
		{wire.Command{Code: s.codes["$1"], OrderID: "o1", CustomerID: "ann", ID: "x"}, start, wire.StatusRedeemed},
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
