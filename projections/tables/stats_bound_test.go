package tables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
)

// inBatches is a database with the tables of a log that is applied in batches of so many messages.
func inBatches(t *testing.T, log []message, size int) *pgxpool.Pool {
	t.Helper()
	pool := open(t)
	r := new(reader)
	for from := 0; from < len(log); from += size {
		if parked := commit(t, pool, r.batch(log[from:min(from+size, len(log))])); len(parked) > 0 {
			t.Fatalf("parked %+v", parked)
		}
	}
	return pool
}

// Of an attribute countedValues values have rows of their own per campaign and day, and of the attributes countedNames, the first
// in the log; the others count together. Where the log is cut into batches makes no difference.
func TestFurtherValuesAndNamesCountTogether(t *testing.T) {
	const (
		further = countedValues + 60 // claims with values of their own
		names   = countedNames + 30  // claims with names of their own
	)
	first := "day = '2026-01-01'"
	for _, c := range []struct {
		name       string
		perMessage int
		claims     func(claim func(at, attributes string))
		redeemed   int // the claim that is redeemed
		want       map[string]string
	}{
		{name: "values", perMessage: 53, redeemed: further, claims: func(claim func(at, attributes string)) {
			for n := 1; n <= further; n++ {
				claim("@2", fmt.Sprintf(`"cart":"v%d","shop":"s%d"`, n, n%3))
			}
			claim("@2", `"cart":"v1"`)       // has a row
			claim("@2", `"cart":"…"`)        // the text itself
			claim("@1440", `"cart":"v1"`)    // another day starts at zero
			claim("@1440", `"cart":"v9999"`) // a value not seen the day before
		}, want: map[string]string{
			"SELECT count(*) FROM scrip.campaign_stats WHERE attribute = 'cart' AND " + first:                     fmt.Sprint(countedValues + 1),
			"SELECT claimed, redeemed FROM scrip.campaign_stats WHERE value = '…'":                                "61 1",
			"SELECT claimed FROM scrip.campaign_stats WHERE value = 'v1' ORDER BY day":                            "2\n1",
			fmt.Sprintf("SELECT claimed FROM scrip.campaign_stats WHERE value = 'v%d'", countedValues):            "1",
			fmt.Sprintf("SELECT claimed FROM scrip.campaign_stats WHERE value = 'v%d'", countedValues+1):          "",
			"SELECT count(*) FROM scrip.campaign_stats WHERE attribute = 'cart' AND day = '2026-01-02'":           "2",
			"SELECT sum(claimed)::bigint FROM scrip.campaign_stats WHERE attribute = 'cart'":                      fmt.Sprint(further + 4),
			"SELECT count(*), sum(claimed)::bigint FROM scrip.campaign_stats WHERE attribute = 'shop'":            fmt.Sprint("3 ", further),
			"SELECT claimed, redeemed FROM scrip.campaign_stats WHERE attribute = '' AND value = '' AND " + first: fmt.Sprint(further+2, " 1"),
		}},
		{name: "names", perMessage: 7, redeemed: names, claims: func(claim func(at, attributes string)) {
			claim("@2", `"shop":"…"`) // a name whose only value is the one for further values
			for n := 2; n <= names; n++ {
				claim("@2", fmt.Sprintf(`"z%03d":"v"`, names-n)) // the order of the log, not of the names
			}
			claim("@2", `"shop":"berlin","z000":"v","z005":"w"`) // one known name, two further ones
			claim("@2", `"…":"v"`)                               // the text itself
			claim("@1440", `"z000":"v"`)                         // another day starts at zero
		}, want: map[string]string{
			"SELECT count(DISTINCT attribute) FROM scrip.campaign_stats WHERE attribute NOT IN ('', '…') AND " + first: fmt.Sprint(countedNames),
			"SELECT value, claimed, redeemed FROM scrip.campaign_stats WHERE attribute = '…'":                          fmt.Sprintf("… %d 1", names-countedNames+3),
			fmt.Sprintf("SELECT claimed FROM scrip.campaign_stats WHERE attribute = 'z%03d'", names-countedNames):      "1",
			fmt.Sprintf("SELECT claimed FROM scrip.campaign_stats WHERE attribute = 'z%03d'", names-countedNames-1):    "",
			"SELECT claimed FROM scrip.campaign_stats WHERE attribute = 'shop' ORDER BY value":                         "1\n1",
			"SELECT attribute, claimed FROM scrip.campaign_stats WHERE attribute <> '' AND day = '2026-01-02'":         "z000 1",
		}},
	} {
		lines := []string{`{"type":"campaign.created","campaign":"c","at":"@1","number":4,"codes":5000,"max_redemptions":1}`}
		var message []string
		claims := 0
		c.claims(func(at, attributes string) {
			claims++
			message = append(message, fmt.Sprintf(`{"type":"coupon.claimed","campaign":"c","at":"%s","n":%d,"code":"C%d","customer_id":"u%d","attributes":{%s}}`, at, claims, claims, claims, attributes))
			if len(message) == c.perMessage {
				lines, message = append(lines, strings.Join(message, " + ")), nil
			}
		})
		lines = append(lines, strings.Join(message, " + "),
			fmt.Sprintf(`{"type":"coupon.redeemed","campaign":"c","at":"@3","n":%d,"code":"C%d","order_id":"o","redeemed_count":1}`, c.redeemed, c.redeemed))
		log := script(strings.Join(lines, "\n"))
		digest := ""
		for _, size := range []int{1, 4, len(log)} {
			pool := inBatches(t, log, size)
			for query, want := range c.want {
				if got := rows(t, pool, query); got != want {
					t.Errorf("%s, %d messages a batch: %s: got %q, want %q", c.name, size, query, got, want)
				}
			}
			if got := projtest.Digest(t, pool); digest == "" {
				digest = got
			} else if got != digest {
				t.Errorf("%s, %d messages a batch: digests\n%swant\n%s", c.name, size, got, digest)
			}
		}
	}
}
