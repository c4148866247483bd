package api_test

import (
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

var update = flag.Bool("update", false, "write the tables of permissions in cmd/RUNBOOK.md instead of comparing with them")

// TestPermissionTables: the tables of the runbook are those that the code and the database have.
func TestPermissionTables(t *testing.T) {
	const file = "../../RUNBOOK.md"
	raw, err := os.ReadFile(file)
	streamtest.Must(t, err)
	before, rest, found := strings.Cut(string(raw), "<!-- permissions -->\n")
	was, after, closed := strings.Cut(rest, "<!-- end of permissions -->")
	if !found || !closed {
		t.Fatal("RUNBOOK.md has no place for the tables of permissions")
	}
	is := "\n" + operationTable() + "\n" + subjectTable() + "\n" + sqlTable(t) + "\n"
	if is != was && *update {
		streamtest.Must(t, os.WriteFile(file, []byte(before+"<!-- permissions -->\n"+is+"<!-- end of permissions -->"+after), 0o644))
	} else if is != was {
		t.Errorf("RUNBOOK.md has other permissions; write them by: go test ./cmd/internal/api -run TestPermissionTables -update\nit has\n%swant\n%s", was, is)
	}
}

// quoted is a list of names as a cell.
func quoted(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return "`" + strings.Join(list, "`, `") + "`"
}

// operationTable has the routes of HTTP and the endpoints of the service, by what their callers do.
func operationTable() string {
	routes := map[access.Operation][]string{}
	for _, r := range api.New(http.NewServeMux(), api.Options{}).Routes() {
		routes[r.Operation] = append(routes[r.Operation], r.Method+" "+strings.TrimPrefix(r.Path, "/v1"))
	}
	var b strings.Builder
	b.WriteString("| operation | roles | over HTTP, below `/v1` | over NATS, below `scrip.` |\n|---|---|---|---|\n")
	for o := range access.Operations() {
		var roles []string
		for _, role := range o.Roles() {
			roles = append(roles, role.String())
		}
		if o.Whole() {
			roles = append(roles, "of all campaigns")
		}
		if (access.Principal{Role: access.Producer, Public: true}).CheckRole(o) == nil {
			roles = append(roles, "also public")
		}
		slices.Sort(routes[o])
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", o, strings.Join(roles, ", "), quoted(routes[o]), quoted(o.Endpoints()))
	}
	return b.String()
}

// subjectTable has what keys may publish to on NATS beside the endpoints of the service.
func subjectTable() string {
	var b strings.Builder
	b.WriteString("| key | subjects beside those |\n|---|---|\n")
	for _, role := range access.Keyed {
		for what, p := range map[string]access.Principal{"": {}, ", sees codes and customers": {Codes: true, Customers: true}} {
			p.Role, p.ID = role, "01h8z3qk"
			perms, _ := natsauth.Of(p, 1)
			more := slices.DeleteFunc(perms.Publish, func(subject string) bool {
				return access.OperationOn(strings.TrimPrefix(subject, "scrip.")) != access.NoOperation
			})
			if what == "" || role == access.Analyst {
				fmt.Fprintf(&b, "| %s%s | %s |\n", role, what, quoted(more))
			}
		}
	}
	lines := strings.SplitAfter(b.String(), "\n")
	slices.Sort(lines[2 : len(lines)-1])
	return strings.NewReplacer("_0`", "_<lane>`", ".0.", ".<lane>.").Replace(strings.Join(lines, ""))
}

// sqlTable has what analysts may read in PostgreSQL.
func sqlTable(t *testing.T) string {
	url := projtest.URL(t)
	_, err := schema.Ensure(t.Context(), projtest.Pool(t, url), slog.New(slog.DiscardHandler))
	streamtest.Must(t, err)
	pool := projtest.Pool(t, projtest.Admin(t, url))
	_, err = confine.Analysts(t.Context(), pool, []access.Login{{Name: "eve", ID: "01h8z3qk", Verifier: "SCRAM-SHA-256$"}}, nil, nil, false, false)
	streamtest.Must(t, err)
	rows, err := pool.Query(t.Context(), `SELECT format('| `+"`%s.%s`"+` | %s | %s |', n.nspname, c.relname, p.masked, p.clear)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, left(current_database(), 40) AS d (name), LATERAL (
			SELECT CASE WHEN has_table_privilege(d.name || '_analyst', c.oid, 'SELECT') THEN 'all columns' ELSE (
				SELECT string_agg('`+"`' || a.attname || '`"+`', ', ' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND has_column_privilege(d.name || '_analyst', c.oid, a.attnum, 'SELECT')) END,
			CASE WHEN has_table_privilege(d.name || '_analyst', c.oid, 'SELECT') OR has_table_privilege(d.name || '_analyst_clear', c.oid, 'SELECT') THEN 'all columns' END) p (masked, clear)
		WHERE n.nspname LIKE 'scrip%' AND c.relkind IN ('r', 'v', 'p') AND coalesce(p.masked, p.clear) IS NOT NULL ORDER BY 1`)
	streamtest.Must(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	streamtest.Must(t, err)
	return "| relation in PostgreSQL | an analyst reads, with codes and customers as its key sees them | an analyst who sees both |\n|---|---|---|\n" + strings.Join(lines, "\n") + "\n"
}
