package main

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestRebuildAndVerify: the commands' exit codes and words. A row is damaged, found and repaired; the tables are rebuilt, taken
// back and copied. What a rebuild does and refuses is shown by package rebuild.
func TestRebuildAndVerify(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "rebuilt", "--codes", "100", "--per-customer", "0")
	for _, customer := range []string{"rebuilt-1", "rebuilt-2"} {
		p.must("claim", "rebuilt", "--customer", customer)
	}
	p.row("2", "SELECT count(*)::text FROM scrip.coupon WHERE campaign = 'rebuilt'")
	if got := p.must("rebuild"); got["schema"] != "scrip" || got["events"].(float64) < 3 {
		t.Errorf("rebuilt %v", got)
	}
	digest := func() (all string) {
		t.Helper()
		err := p.postgres().QueryRow(t.Context(), "SELECT string_agg(relation || ' ' || row_count || ' ' || digest, E'\n') FROM scrip.digest()").Scan(&all)
		streamtest.Must(t, err)
		return all
	}
	before := digest()
	if _, err := p.postgres().Exec(t.Context(), "UPDATE "+p.tables()+".coupon_claim SET customer_id = 'mallory', code = 'X' WHERE customer_id = 'rebuilt-2'"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"verify"}, cli.ExitDiffered, "rebuilt/2"},
		{[]string{"verify", "--limit", "1"}, cli.ExitDiffered, "rows that differ: 1, listed: 1"},
		{[]string{"verify", "--campaign", "rebuilt", "-o", "json"}, cli.ExitDiffered, `"found":"mallory"`},
		{[]string{"job", "list"}, cli.ExitDone, "verify.start"},
		{[]string{"verify", "--repair"}, cli.ExitDone, "repaired: rebuilt"},
		{[]string{"verify"}, cli.ExitDone, "equal"},
		{[]string{"rebuild", "--undo"}, cli.ExitDone, "the previous tables are in use again"},
		{[]string{"rebuild", "--drop-previous"}, cli.ExitDone, "only the tables in use are left"},
		{[]string{"rebuild", "--undo"}, cli.ExitRefused, "there are no previous tables"},
		{[]string{"rebuild", "--until", time.Now().UTC().Format(time.RFC3339Nano), "--schema", "copy"}, cli.ExitDone, "the copy is in schema copy"},
		{[]string{"rebuild", "--schema", "copy"}, cli.ExitRefused, "schema copy or copy_rows exists; drop them (DROP SCHEMA copy, copy_rows CASCADE)"},
		{[]string{"rebuild", "--schema", "copy", "-o", "json"}, cli.ExitRefused, `{"status":"refused","refusal":"not_begun","message":"schema copy or copy_rows exists`},
		{[]string{"rebuild", "--until", "+1h", "--schema", "ahead"}, cli.ExitRefused, "is in the future"},
		{[]string{"rebuild", "--schema", "scrip_next"}, cli.ExitRefused, "uses itself"},
		{[]string{"rebuild", "tables"}, cli.ExitDone, "the new tables are in use"},
	} {
		p.expect(step.code, step.want, step.args...)
	}
	// A job that failed has no result.
	if got := p.run("verify", "--campaign", "nowhere"); got.code != cli.ExitFailed || !strings.Contains(got.err, "neither in the log nor in the tables") || got.out != "" {
		t.Errorf("a campaign that is not there: %+v", got)
	}
	if now := digest(); now != before {
		t.Errorf("digests differ at the end:\n%s\nbefore\n%s", now, before)
	}
	p.healthy()
}
