package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
)

// TestRebuildAndVerify: the commands' exit codes and words. A row is damaged, found and repaired; the tables are rebuilt, taken
// back and copied. What a rebuild does is shown by package rebuild.
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
	digest := p.digest()
	if _, err := p.postgres().Exec(t.Context(), "UPDATE scrip.coupon_row SET customer_id = 'mallory', code = 'X' WHERE customer_id = 'rebuilt-2'"); err != nil {
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
		{[]string{"job", "show", "verify-0"}, cli.ExitRefused, "there is no such job"},
		{[]string{"verify", "--campaign", "nowhere"}, cli.ExitFailed, "neither in the log nor in the tables"},
		{[]string{"verify", "--repair"}, cli.ExitDone, "repaired: rebuilt"},
		{[]string{"verify"}, cli.ExitDone, "equal"},
		{[]string{"rebuild", "--undo"}, cli.ExitDone, "the previous tables are in use again"},
		{[]string{"rebuild", "--drop-previous"}, cli.ExitDone, "the previous tables are dropped"},
		{[]string{"rebuild", "--undo"}, cli.ExitRefused, "there are no previous tables"},
		{[]string{"rebuild", "--until", time.Now().UTC().Format(time.RFC3339Nano), "--schema", "copy"}, cli.ExitDone, "the copy is in schema copy"},
		{[]string{"rebuild", "--schema", "copy"}, cli.ExitRefused, "schema copy exists"},
		{[]string{"rebuild", "--schema", "copy", "-o", "json"}, cli.ExitRefused, `{"status":"refused","refusal":"not_begun","message":"schema copy exists`},
		{[]string{"rebuild", "--until", "+1h", "--schema", "ahead"}, cli.ExitRefused, "is in the future"},
		{[]string{"rebuild", "--until", "+1h"}, cli.ExitRefused, "until: needs schema"},
		{[]string{"rebuild", "--schema", "scrip_next"}, cli.ExitRefused, "uses itself"},
		{[]string{"rebuild", "--undo", "--drop-previous"}, cli.ExitUsage, "takes one of"},
		{[]string{"rebuild", "coupons"}, cli.ExitUsage, `there is "tables"`},
		{[]string{"rebuild", "tables"}, cli.ExitDone, "the new tables are in use"},
	} {
		if got := p.run(step.args...); got.code != step.code || !strings.Contains(got.out+got.err, step.want) {
			t.Errorf("%v: exit %d, want %d and %q\n%s%s", step.args, got.code, step.code, step.want, got.out, got.err)
		}
	}
	if now := p.digest(); now != digest {
		t.Errorf("digests differ at the end:\n%s\nbefore\n%s", now, digest)
	}
	p.healthy()
}

// postgres is a connection to the server's tables.
func (p *process) postgres() *pgx.Conn {
	p.t.Helper()
	db, err := pgx.Connect(p.t.Context(), p.ready().PostgresURL)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = db.Close(context.Background()) })
	return db
}

// digest is what the tables hold.
func (p *process) digest() (all string) {
	p.t.Helper()
	db := p.postgres()
	if err := db.QueryRow(p.t.Context(), "SELECT string_agg(relation || ' ' || row_count || ' ' || digest, E'\n') FROM scrip.digest()").Scan(&all); err != nil {
		p.t.Fatal(err)
	}
	return all
}
