package contract

import (
	"fmt"
	"testing"
	"time"
)

// wantStatus sends a request and compares its status or refusal.
func (r *rig) wantStatus(t *testing.T, subject, body, want string) map[string]any {
	t.Helper()
	answer := parse(t, r.request(t, subject, body))
	got := fmt.Sprint(answer["status"])
	if answer["refusal"] != nil {
		got = fmt.Sprint(answer["refusal"])
	}
	if answer["repeat"] == true {
		got += " repeat"
	}
	if got != want {
		t.Errorf("%s %s: %v, want %s", subject, body, answer, want)
	}
	return answer
}

// farAway is when nothing is due yet, for as long as a test may take.
const farAway = "2031-01-01T00:00:00Z"

// soon moves a time of a campaign to d from now and returns it. Tests set everything up before that, so that no limit of time
// is on their steps. An update that is decided later than d is refused, and repeated.
func (r *rig) soon(t *testing.T, campaign, field string, d time.Duration) (at string) {
	t.Helper()
	eventually(t, field+" is moved", func() bool {
		at = in(d)
		answer := parse(t, r.request(t, "scrip.campaign.update", fmt.Sprintf(`{"campaign":"%s","%s":"%s"}`, campaign, field, at)))
		return answer["status"] == "updated"
	})
	return at
}

// extendSoon is soon for the end of one coupon.
func (r *rig) extendSoon(t *testing.T, code string, d time.Duration) (at string) {
	t.Helper()
	eventually(t, "the coupon is extended", func() bool {
		at = in(d)
		answer := parse(t, r.request(t, "scrip.extend", fmt.Sprintf(`{"code":"%s","expires_at":"%s"}`, code, at)))
		return answer["status"] == "extended"
	})
	return at
}
