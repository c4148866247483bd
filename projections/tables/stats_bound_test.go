package tables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/schema"
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

// Of an attribute countedValues values have rows of their own per campaign and day, the first in the log; the others count
// together. Where the log is cut into batches makes no difference.
func TestFurtherValuesCountTogether(t *testing.T) {
	const claims, perMessage = countedValues + 60, 53
	lines := []string{`{"type":"campaign.created","campaign":"c","at":"@1","number":4,"codes":5000,"max_redemptions":1}`}
	var message []string
	claim := func(n int, at, attributes string) {
		message = append(message, fmt.Sprintf(`{"type":"coupon.claimed","campaign":"c","at":"%s","n":%d,"code":"C%d","customer_id":"u%d","attributes":{%s}}`, at, n, n, n, attributes))
		if len(message) == perMessage {
			lines, message = append(lines, strings.Join(message, " + ")), nil
		}
	}
	for n := 1; n <= claims; n++ {
		claim(n, "@2", fmt.Sprintf(`"cart":"v%d","shop":"s%d"`, n, n%3))
	}
	claim(claims+1, "@2", `"cart":"v1"`)                // has a row
	claim(claims+2, "@2", `"cart":"…"`)                 // the text itself
	claim(claims+3, "@1440", `"cart":"v1"`)             // another day starts at zero
	claim(claims+4, "@1440", `"cart":"v9999"`)          // a value not seen the day before
	lines = append(lines, strings.Join(message, " + ")) // the rest
	lines = append(lines, fmt.Sprintf(`{"type":"coupon.redeemed","campaign":"c","at":"@3","n":%d,"code":"C%d","order_id":"o","redeemed_count":1}`, claims, claims))
	log := script(strings.Join(lines, "\n"))

	var digest string
	for _, size := range []int{1, 4, len(log)} {
		pool := inBatches(t, log, size)
		for query, want := range map[string]string{
			"SELECT count(*) FROM scrip.campaign_stats WHERE attribute = 'cart' AND day = '2026-01-01'":                     fmt.Sprint(countedValues + 1),
			"SELECT claimed, redeemed FROM scrip.campaign_stats WHERE value = '…'":                                          "61 1",
			"SELECT claimed FROM scrip.campaign_stats WHERE value = 'v1' ORDER BY day":                                      "2\n1",
			fmt.Sprintf("SELECT claimed FROM scrip.campaign_stats WHERE value = 'v%d'", countedValues):                      "1",
			fmt.Sprintf("SELECT claimed FROM scrip.campaign_stats WHERE value = 'v%d'", countedValues+1):                    "",
			"SELECT count(*) FROM scrip.campaign_stats WHERE attribute = 'cart' AND day = '2026-01-02'":                     "2",
			"SELECT sum(claimed)::bigint FROM scrip.campaign_stats WHERE attribute = 'cart'":                                fmt.Sprint(claims + 4),
			"SELECT count(*), sum(claimed)::bigint FROM scrip.campaign_stats WHERE attribute = 'shop'":                      fmt.Sprint("3 ", claims),
			"SELECT claimed, redeemed FROM scrip.campaign_stats WHERE attribute = '' AND day = '2026-01-01' AND value = ''": fmt.Sprint(claims+2, " 1"),
		} {
			if got := rows(t, pool, query); got != want {
				t.Errorf("%d messages a batch: %s: got %q, want %q", size, query, got, want)
			}
		}
		list, err := schema.Digests(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(list); digest == "" {
			digest = got
		} else if got != digest {
			t.Errorf("%d messages a batch: digests %s, want %s", size, got, digest)
		}
	}
}

// Of the attributes of a campaign countedNames have rows of their own per day, the first in the log; the others count
// together, also where batches cut the log.
func TestFurtherNamesCountTogether(t *testing.T) {
	const names, perMessage = countedNames + 30, 7
	lines := []string{`{"type":"campaign.created","campaign":"c","at":"@1","number":4,"codes":5000,"max_redemptions":1}`}
	var message []string
	claims := 0
	claim := func(at, attributes string) {
		claims++
		message = append(message, fmt.Sprintf(`{"type":"coupon.claimed","campaign":"c","at":"%s","n":%d,"code":"C%d","customer_id":"u%d","attributes":{%s}}`, at, claims, claims, claims, attributes))
		if len(message) == perMessage {
			lines, message = append(lines, strings.Join(message, " + ")), nil
		}
	}
	claim("@2", `"shop":"…"`) // a name whose only value is the one for further values
	for n := 2; n <= names; n++ {
		claim("@2", fmt.Sprintf(`"z%03d":"v"`, names-n)) // the order of the log, not of the names
	}
	claim("@2", `"shop":"berlin","z000":"v","z005":"w"`) // one known name, two further ones
	claim("@2", `"…":"v"`)                               // the text itself
	claim("@1440", `"z000":"v"`)                         // another day starts at zero
	lines = append(lines, strings.Join(message, " + "))  // the rest
	lines = append(lines, fmt.Sprintf(`{"type":"coupon.redeemed","campaign":"c","at":"@3","n":%d,"code":"C%d","order_id":"o","redeemed_count":1}`, names, names))
	log := script(strings.Join(lines, "\n"))

	for _, size := range []int{1, 3, len(log)} {
		pool := inBatches(t, log, size)
		for query, want := range map[string]string{
			"SELECT count(DISTINCT attribute) FROM scrip.campaign_stats WHERE attribute NOT IN ('', '…') AND day = '2026-01-01'": fmt.Sprint(countedNames),
			"SELECT value, claimed, redeemed FROM scrip.campaign_stats WHERE attribute = '…'":                                    fmt.Sprintf("… %d 1", names-countedNames+3),
			fmt.Sprintf("SELECT claimed FROM scrip.campaign_stats WHERE attribute = 'z%03d'", names-countedNames):                "1",
			fmt.Sprintf("SELECT claimed FROM scrip.campaign_stats WHERE attribute = 'z%03d'", names-countedNames-1):              "",
			"SELECT claimed FROM scrip.campaign_stats WHERE attribute = 'shop' ORDER BY value":                                   "1\n1",
			"SELECT attribute, claimed FROM scrip.campaign_stats WHERE attribute <> '' AND day = '2026-01-02'":                   "z000 1",
		} {
			if got := rows(t, pool, query); got != want {
				t.Errorf("%d messages a batch: %s: got %q, want %q", size, query, got, want)
			}
		}
	}
}
