package projtest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Reads runs a query and returns how many rows it read from tables and entries from bitmaps of indexes, also those that it
// did not return, and its plan.
func Reads(t testing.TB, db Querier, sql string, args ...any) (rows int, plan string) {
	t.Helper()
	result, err := db.Query(t.Context(), "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, FORMAT JSON) "+sql, args...)
	if err == nil {
		plan, err = pgx.CollectExactlyOneRow(result, pgx.RowTo[string])
	}
	var list []struct{ Plan node }
	if err == nil {
		err = json.Unmarshal([]byte(plan), &list)
	}
	if err != nil || len(list) != 1 {
		t.Fatalf("%v of the plan of %s", err, sql)
	}
	return int(list[0].Plan.read()), plan
}

// node is a step of a plan. Rows are means of a loop.
type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Lossy    float64 `json:"Rows Removed by Index Recheck"`
	Plans    []node
}

func (n *node) read() (rows float64) {
	if n.Relation != "" && strings.Contains(n.Type, "Scan") || n.Type == "Bitmap Index Scan" {
		rows = (n.Rows + n.Filtered + n.Lossy) * n.Loops
	}
	for i := range n.Plans {
		rows += n.Plans[i].read()
	}
	return rows
}
