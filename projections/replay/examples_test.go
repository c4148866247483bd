package replay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// example folds the log with a shipped example, in batches of so many lines.
func (r *rig) example(t *testing.T, db, name string, lines int) {
	t.Helper()
	text, err := ExampleSQL(name)
	streamtest.Must(t, err)
	f := parse(t, name+".sql", string(text))
	if f.Name != name || len(f.Types) == 0 {
		t.Errorf("example %s is called %s and wants %v", name, f.Name, f.Types)
	}
	r.run(Postgres(db, f.Definition(), true), Options{Filter: Filter{Types: f.Types}, Limits: fill.Limits{Lines: lines}})
}

// shop lets some customers claim in both lanes, over hours, and redeem after different times.
func (r *rig) shop() {
	r.T.Helper()
	for _, c := range campaigns {
		r.create(c, `,"max_redemptions":2`)
		codes := r.claim(c, "ann", "bob", "cy")
		r.Clock = r.Clock.Add(30 * time.Second)
		r.redeem(c, codes[0], "o1")
		r.Clock = r.Clock.Add(time.Hour)
		codes = append(codes, r.claim(c, "dee")...)
		r.redeem(c, codes[0], "o2") // a second use
		r.redeem(c, codes[1], "o3")
		r.rollback(c, codes[1], "o3")
		r.redeem(c, codes[3], "o4")
	}
	r.claim(campaigns[0], "only0")
}

// Each example against sums made by hand, whatever the size of batches.
func TestExamples(t *testing.T) {
	r := newRig(t)
	r.shop()
	hour := map[string][3]int{}
	for n := range lanes {
		_, lines := r.stored(n)
		for _, line := range lines {
			var e wire.Event
			streamtest.Must(t, wire.ParseEvent([]byte(line), &e))
			key := e.Campaign + " " + e.At.Time().Format("2006-01-02 15")
			sums := hour[key]
			switch e.Type {
			case wire.CouponClaimed:
				sums[0]++
			case wire.CouponRedeemed:
				sums[1]++
			case wire.CouponRolledBack:
				sums[2]++
			default:
				continue
			}
			hour[key] = sums
		}
	}
	var hours []string
	for key, sums := range hour {
		hours = append(hours, fmt.Sprintf("%s: %d %d %d", key, sums[0], sums[1], sums[2]))
	}
	slices.Sort(hours)
	db := projtest.URL(t)
	for _, lines := range []int{0, 1, 2} {
		r.example(t, db, "claims_by_hour", lines)
		got := query(t, db, `SELECT string_agg(campaign || to_char(hour AT TIME ZONE 'UTC', ' YYYY-MM-DD HH24') || ': ' || claims || ' ' || redemptions || ' ' || rollbacks, ', ' ORDER BY campaign, hour) FROM claims_by_hour.hour`)
		if got != strings.Join(hours, ", ") || len(hours) < 4 {
			t.Errorf("claims_by_hour: %s\nwant %s", got, strings.Join(hours, ", "))
		}

		r.example(t, db, "time_to_redeem", lines)
		// By lane: ann after 31 s, bob after an hour and 34 s, dee after 4 s; cy and only0 never.
		got = query(t, db, `SELECT string_agg(claims || ' ' || redeemed || ' ' || median || ' ' || longest, ', ' ORDER BY claims) FROM time_to_redeem.percentiles`)
		if got != "4 3 00:00:31 01:00:34, 5 3 00:00:31 01:00:34" {
			t.Errorf("time_to_redeem.percentiles: %s", got)
		}
		got = query(t, db, `SELECT string_agg("from" || ' to ' || below || ': ' || redemptions, ', ' ORDER BY campaign, "from") FROM time_to_redeem.histogram WHERE campaign = $1`, campaigns[0])
		if got != "00:00:00 to 00:01:00: 2, 01:00:00 to 06:00:00: 1" {
			t.Errorf("time_to_redeem.histogram: %s", got)
		}

		r.example(t, db, "never_redeem", lines)
		got = query(t, db, `SELECT string_agg(customer_id || ' ' || claimed, ', ' ORDER BY customer_id) FROM never_redeem.collector`)
		if got != "bob 2, cy 2, only0 1" {
			t.Errorf("never_redeem: %s", got)
		}
	}
	if _, err := ExampleSQL("nonsense"); err == nil || !strings.Contains(err.Error(), "claims_by_hour, never_redeem, time_to_redeem") {
		t.Errorf("no such example: %v", err)
	}
}
