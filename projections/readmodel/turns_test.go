package readmodel

import (
	"context"
	"errors"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// byIndex are the lists of rare of which an index finds the entries.
var byIndex = map[string]bool{
	"coupon.list campaign":      true,
	"coupon.list customer_id":   true,
	"coupon.list order_id":      true,
	"reminder.list campaign":    true,
	"reminder.list customer_id": true,
	"deadletter.list":           true,
	"deadletter.list since":     true,
	"campaign.changes campaign": true,
}

// TestWhichPartsTakeTurns: all whose rows no index selects, the first one of a list and one that goes on. Without a turn they are not
// read; with one they go on.
func TestWhichPartsTakeTurns(t *testing.T) {
	partRows = 500
	t.Cleanup(func() { partRows = 10_000 })
	pool := database(t)
	fillTables(t, pool)
	refusal := errors.New("no turn")
	refused := ops.WithTurn(t.Context(), func(context.Context) error { return refusal })
	for name, list := range rare(&reader{NewCoupons(pool), NewHistory(pool, nothing), NewLetters(pool)}) {
		p := ops.Paging{Limit: 9}
		for parts := 0; parts == 0 || parts < 2 && p.After != ""; parts++ {
			n, _, err := list.part(refused, p)
			if byIndex[name] && err != nil || !byIndex[name] && (n > 0 || !errors.Is(err, refusal)) {
				t.Errorf("%s, part %d, without a turn: %d entries, %v", name, parts, n, err)
			}
			_, p.After, err = list.part(t.Context(), p)
			streamtest.Must(t, err)
		}
	}
}
