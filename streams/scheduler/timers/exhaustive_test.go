package timers

import (
	"errors"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// TestEveryEventIsFolded: an event that may change what is due has a rule, and a line of any other is not parsed.
func TestEveryEventIsFolded(t *testing.T) {
	for e := range wire.Events() {
		b := New(t.TempDir())
		fold(t, b, wire.Event{Type: wire.CampaignCreated, Campaign: "a", Settings: wire.DefaultSettings(5)})
		ev := wire.Event{Type: e, Campaign: "a", N: 1, R: 1, ExpiresAt: start}
		if _, err := b.Fold(&ev); errors.Is(err, errNoRule) {
			t.Errorf("no rule folds %s", e)
		}
		if !e.Spec().Due && !b.FoldLine(ev.AppendJSON(nil)) {
			t.Errorf("a line of %s is parsed, and changes nothing", e)
		}
		if e.Spec().Due && e != wire.CouponClaimed && b.FoldLine(ev.AppendJSON(nil)) { // most claims are read the short way
			t.Errorf("a line of %s is passed over", e)
		}
		b.Close()
	}
}
