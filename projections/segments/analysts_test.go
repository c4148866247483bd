package segments

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// Every query that ANALYSTS.md shows of schema scrip reads coupons by an index, in each sealed segment.
func TestAnalystsQueriesUseIndexes(t *testing.T) {
	r := newRig(t)
	s := r.open(Options{Rows: 2000})
	r.run(s)
	for range 12 {
		r.claim(s, 0, 500)
		r.claim(s, 1, 500)
	}
	streamtest.Must(t, s.Finish(t.Context()))
	_, err := r.pool.Exec(t.Context(), "ANALYZE")
	streamtest.Must(t, err)
	page, err := os.ReadFile("../ANALYSTS.md")
	streamtest.Must(t, err)
	seen := 0
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for _, query := range strings.Split(regexp.MustCompile(`--[^\n]*`).ReplaceAllString(block[1], ""), ";") {
			if query = strings.TrimSpace(query); !strings.HasPrefix(query, "select") {
				continue
			}
			seen++
			query = strings.ReplaceAll(query, "'summer'", "'c1'")
			rows, err := r.pool.Query(t.Context(), "EXPLAIN (COSTS off) "+query)
			streamtest.Must(t, err)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			// Half of these rows are of one campaign, so PostgreSQL may read all of a segment; of a customer it may not.
			byCampaign := strings.Contains(query, "where campaign =")
			for _, line := range lines {
				if strings.Contains(line, "Seq Scan on coupon_claim") && !strings.Contains(line, "coupon_claim_0 ") && !byCampaign { // segment 0 is empty
					t.Errorf("%s\n%s", query, strings.Join(lines, "\n"))
				}
			}
		}
	}
	if seen < 7 {
		t.Errorf("%d queries", seen)
	}
}
