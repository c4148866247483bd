package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
)

// All rows of all tables are deleted while claims run; rebuilt, exchanged under the running server and verified. Then a
// row is damaged, found and repaired; the rebuild is undone and done again.
func TestRebuildAndVerify(t *testing.T) {
	p := serve(t, dataDir(t))
	p.must("campaign", "create", "sale", "--codes", "100000", "--per-customer", "0")
	var claims atomic.Int64
	var stopped atomic.Bool
	var claiming sync.WaitGroup
	claiming.Go(func() {
		for !stopped.Load() {
			if got := p.run("claim", "sale", "--customer", "live"); got.code != cli.ExitDone {
				t.Errorf("claim: exit %d\n%s%s", got.code, got.out, got.err)
				return
			}
			claims.Add(1)
		}
	})
	wait(t, "20 claims", stopLimit, func() bool { return claims.Load() >= 20 })

	db := p.postgres()
	before := claims.Load()
	// The checkpoint first, as the projector does: tables are locked in this order, and another one can deadlock.
	if _, err := db.Exec(t.Context(), `TRUNCATE scrip.checkpoint, scrip.campaign, scrip.coupon_row, scrip.redemption, scrip.expiry_task,
		scrip.reminder, scrip.campaign_stats, scrip.refusal_stats, scrip.dead_letter`); err != nil {
		t.Fatal(err)
	}
	got := p.must("rebuild")
	if got["schema"] != "scrip" || got["events"].(float64) < float64(before) {
		t.Errorf("rebuilt %v, with %d claims before", got, before)
	}
	wait(t, "20 claims more", stopLimit, func() bool { return claims.Load() >= before+20 })
	if got := p.run("verify"); got.code != cli.ExitDone {
		t.Errorf("verify while claims run: exit %d\n%s%s", got.code, got.out, got.err)
	}
	stopped.Store(true)
	claiming.Wait()
	p.row(fmt.Sprint(claims.Load()), "SELECT count(*)::text FROM scrip.coupon")
	p.row(fmt.Sprint(claims.Load()), "SELECT coalesce(max(claimed), 0)::text FROM scrip.campaign")
	digest := p.digest()

	if got := p.run("rebuild", "-o", "json"); got.code != cli.ExitDone || strings.Contains(got.out, `"equal":false`) || !strings.Contains(got.out, `"equal":true`) {
		t.Errorf("rebuild of undamaged tables: exit %d\n%s%s", got.code, got.out, got.err)
	}
	if now := p.digest(); now != digest {
		t.Errorf("digests differ after a rebuild:\n%s\nbefore\n%s", now, digest)
	}
	if _, err := db.Exec(t.Context(), "UPDATE scrip.coupon_row SET customer_id = 'mallory', code = 'X' WHERE n = 7"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"verify"}, cli.ExitDiffered, "sale/7"},
		{[]string{"verify", "--limit", "1"}, cli.ExitDiffered, "rows that differ: 1, listed: 1"},
		{[]string{"verify", "--campaign", "sale", "-o", "json"}, cli.ExitDiffered, `"found":"mallory"`},
		{[]string{"verify", "--campaign", "nowhere"}, cli.ExitFailed, "neither in the log nor in the tables"},
		{[]string{"verify", "--repair"}, cli.ExitDone, "repaired: sale"},
		{[]string{"verify"}, cli.ExitDone, "equal"},
		{[]string{"rebuild", "--undo"}, cli.ExitDone, "the previous tables are in use again"},
		{[]string{"rebuild", "--undo"}, cli.ExitDone, "the previous tables are in use again"},
		{[]string{"rebuild", "--drop-previous"}, cli.ExitDone, "the previous tables are dropped"},
		{[]string{"rebuild", "--undo"}, cli.ExitRefused, "there are no previous tables"},
		{[]string{"rebuild", "--until", time.Now().UTC().Format(time.RFC3339Nano), "--schema", "copy"}, cli.ExitDone, "the copy is in schema copy"},
		{[]string{"rebuild", "--schema", "copy"}, cli.ExitRefused, "schema copy exists"},
		{[]string{"rebuild", "--schema", "copy", "-o", "json"}, cli.ExitRefused, `{"status":"refused","refusal":"not_begun","message":"schema copy exists`},
		{[]string{"deadletter", "show", "SCRIP_CMD_0/999/1", "-o", "json"}, cli.ExitRefused, `{"status":"refused","refusal":"dead_letter_not_found","message":"`},
		{[]string{"rebuild", "--until", "+1h", "--schema", "ahead"}, cli.ExitRefused, "is in the future"},
		{[]string{"rebuild", "--until", "+1h"}, cli.ExitUsage, "needs --schema"},
		{[]string{"rebuild", "--schema", "scrip_next"}, cli.ExitUsage, "uses itself"},
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
