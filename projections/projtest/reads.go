package projtest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Preparer is a connection or a transaction.
type Preparer interface {
	Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error)
}

// Execute prepares a query on a connection, and returns the statement that runs it there, with its arguments: for EXPLAIN, or Reads, by the
// plan that the connection keeps. EXPLAIN of the query itself would plan it for the arguments.
func Execute(t testing.TB, db Preparer, sql string, args ...any) (execute string, with []any) {
	t.Helper()
	sd, err := db.Prepare(t.Context(), sql, sql)
	if err != nil {
		t.Fatalf("%v of %s", err, sql)
	}
	places := make([]string, len(args))
	for i := range args {
		places[i] = fmt.Sprintf("$%d", i+1)
	}
	return "EXECUTE " + sd.Name + " (" + strings.Join(places, ", ") + ")", append([]any{pgx.QueryExecModeSimpleProtocol}, args...)
}

// Reads runs a query and returns how many rows it read from tables and entries from bitmaps of indexes, also those that it
// did not return, and its plan.
func Reads(t testing.TB, db Querier, sql string, args ...any) (rows int, plan string) {
	t.Helper()
	top, plan := explain(t, db, "COSTS OFF", sql, args...)
	return int(top.read()), plan
}

// Estimate is how many rows the planner expected of a step, and how many there were.
type Estimate struct {
	Step             string
	Expected, Actual float64
}

// Factor is by how much an estimate is wrong. Ten rows more or less are right.
func (e Estimate) Factor() float64 {
	return max((e.Expected-10)/max(e.Actual, 1), (e.Actual-10)/max(e.Expected, 1), 1)
}

// Estimates runs a query and returns its estimates: of each join that ran once, and of the step that gives the rows of a
// query without a join.
func Estimates(t testing.TB, db Querier, sql string, args ...any) (all []Estimate, plan string) {
	t.Helper()
	top, plan := explain(t, db, "COSTS ON", sql, args...)
	all = top.joins()
	if len(all) == 0 {
		first := top
		for len(first.Plans) == 1 && !strings.Contains(first.Type, "Scan") {
			first = &first.Plans[0]
		}
		all = []Estimate{{first.Type, first.Expected, first.Rows}}
	}
	return all, plan
}

func explain(t testing.TB, db Querier, option, sql string, args ...any) (top *node, plan string) {
	t.Helper()
	result, err := db.Query(t.Context(), "EXPLAIN (ANALYZE, "+option+", TIMING OFF, SUMMARY OFF, FORMAT JSON) "+sql, args...)
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
	return &list[0].Plan, plan
}

// node is a step of a plan. Rows are means of a loop.
type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Expected float64 `json:"Plan Rows"`
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

// joins are the estimates of joins that ran once.
func (n *node) joins() (all []Estimate) {
	if n.Loops == 1 && (strings.Contains(n.Type, "Join") || n.Type == "Nested Loop") {
		all = append(all, Estimate{n.Type, n.Expected, n.Rows})
	}
	for i := range n.Plans {
		all = append(all, n.Plans[i].joins()...)
	}
	return all
}
