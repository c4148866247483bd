package domain

import (
	"testing"
)

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
	})
}

func TestCreateAndUpdate(t *testing.T) {
	stories(t, map[string]string{
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
