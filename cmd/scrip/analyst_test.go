package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// analyst connects to PostgreSQL with a new key of role analyst, as its answer has it.
func (p *process) analyst(name string, more ...string) (_ *pgx.Conn, address, key string) {
	p.t.Helper()
	made := p.must(append([]string{"access", "create", name, "--role", "analyst"}, more...)...)
	db := p.opened(made)
	return db, db.Config().ConnString(), made["secret"].(string)
}

// opened connects with a key that was made, once it is the password of its user.
func (p *process) opened(made map[string]any) (db *pgx.Conn) {
	p.t.Helper()
	u, err := url.Parse(made["postgres_url"].(string))
	streamtest.Must(p.t, err)
	u.User = url.UserPassword(u.User.Username(), made["secret"].(string))
	streamtest.Eventually(p.t, "the key opens PostgreSQL", func() bool {
		db, err = pgx.Connect(p.t.Context(), u.String())
		return err == nil
	})
	p.t.Cleanup(func() { _ = db.Close(context.Background()) })
	return db
}

// TestAnAnalystReadsTables: with its key and psql an analyst reads what the contract lists, with codes masked as everywhere, and
// nothing else; it ends with the key.
func TestAnAnalystReadsTables(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "analysed", "--codes", "10")
	code := p.must("claim", "analysed", "--customer", "analysed-ann")["code"].(string)
	p.must("redeem", code, "--order", "o1")
	p.row("1", "SELECT count(*)::text FROM scrip.redemption WHERE campaign = 'analysed'")
	db, address, _ := p.analyst("eve")
	clear, _, _ := p.analyst("eva", "--codes", "--customers")
	text := func(db *pgx.Conn, sql string) (got string) {
		t.Helper()
		if err := db.QueryRow(t.Context(), sql).Scan(&got); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
		return got
	}
	const both = "SELECT c.code FROM scrip.coupon c JOIN scrip.redemption r USING (campaign, n, code) WHERE campaign = 'analysed'"
	masked := text(db, both)
	if !strings.HasPrefix(masked, "masked-") || strings.Contains(masked, code) {
		t.Errorf("code %s", masked)
	}
	streamtest.Equal(t, "with the right to codes", text(clear, both), code)
	raw, err := os.ReadFile("../../domain/CONTRACT.md")
	streamtest.Must(t, err)
	_, page, _ := strings.Cut(string(raw), "\n## SQL\n")
	var not []string // what the page says is not for analysts
	for _, row := range regexp.MustCompile("(?m)^\\| `(?:scrip[.])?([a-z_.()]+)` \\| `[a-z].*$").FindAllStringSubmatch(strings.Split(page, "\n## ")[0], -1) {
		name := row[1]
		if !strings.Contains(name, ".") {
			name = "scrip." + name
		}
		switch {
		case strings.Contains(row[0], "Not for analysts"):
			not = append(not, "SELECT * FROM "+name)
		default:
			text(db, "SELECT count(*)::text FROM (SELECT * FROM "+name+") x")
		}
	}
	streamtest.Equal(t, "not for analysts", strings.Join(not, "; "), "SELECT * FROM scrip.digest()")
	letter := p.parked("scrip.cmd.analysed", "{", 1)
	streamtest.Equal(t, "lines of dead letters", text(db, "SELECT concat_ws(' ', count(*) > 0, count(payload)) FROM scrip.dead_letter"), "t 0")
	streamtest.Equal(t, "with the right to codes", text(clear, "SELECT (count(payload) > 0)::text FROM scrip.dead_letter"), "true")
	p.must("deadletter", "discard", letter)
	streamtest.Equal(t, "what she sees of schema scrip and may not read", text(db, `SELECT coalesce(string_agg(c.relname, ' '), '') FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'scrip' AND NOT has_table_privilege(c.oid, 'SELECT')`), "")
	streamtest.Equal(t, "limits", text(db, "SHOW statement_timeout")+" "+text(db, "SHOW default_transaction_read_only"), "1min on")
	_, err = db.Exec(t.Context(), "SET default_transaction_read_only = off") // it has no rights in any case
	streamtest.Must(t, err)
	for _, refused := range append(not,
		"UPDATE scrip.campaign SET status = 'ended'", "DELETE FROM scrip.campaign", "CREATE TABLE public.t (n int)", "CREATE TEMPORARY TABLE t (n int)", "CREATE SCHEMA s",
		"SELECT * FROM scrip_meta.mask", "SELECT * FROM scrip_meta.dead_letter", "SELECT * FROM scrip_meta.format", "SELECT code FROM scrip_tables.coupon_row", "SELECT code FROM "+p.tables()+".coupon_claim",
		"SELECT code FROM scrip_tables.redemption_row", "SELECT projection_roles.analyst(NULL)", "SELECT projection_roles.guard('[]', true)", "SET ROLE scrip_analyst_codes", "SET ROLE scrip_analyst_customers", "SET ROLE scrip_analyst_clear",
		"SELECT lo_create(0)", "SELECT pg_advisory_lock(1)", "SELECT pg_notify('scrip', '')", "SET temp_file_limit = -1",
	) {
		var pg *pgconn.PgError
		if _, err := db.Exec(t.Context(), refused); !errors.As(err, &pg) || pg.Code != "42501" {
			t.Errorf("%s: %v", refused, err)
		}
	}
	_, err = db.Exec(t.Context(), "SET statement_timeout = '100ms'; SELECT count(*) FROM generate_series(1, 100000000000)")
	var cut *pgconn.PgError
	if !errors.As(err, &cut) || cut.Code != "57014" {
		t.Errorf("a query of an hour: %v", err)
	}
	if other, err := pgx.Connect(t.Context(), strings.Replace(address, "/scrip?", "/postgres?", 1)); err == nil {
		t.Error("it connects to another database")
		_ = other.Close(t.Context())
	}
	// A new password of the same user, who keeps what it was granted.
	owner := p.postgres()
	_, err = owner.Exec(t.Context(), "CREATE SCHEMA reports; CREATE TABLE reports.t AS SELECT 'mine' AS v; GRANT USAGE ON SCHEMA reports TO analyst_eva; GRANT SELECT ON reports.t TO analyst_eva")
	streamtest.Must(t, err)
	clear = p.opened(p.must("access", "rotate", "eva"))
	streamtest.Equal(t, "after a rotation", text(clear, "SELECT session_user || ' ' || v FROM reports.t"), "analyst_eva mine")
	// After a rebuild, and in tables that are made again.
	p.must("rebuild")
	streamtest.Equal(t, "after a rebuild", text(db, both), masked)
	_, err = owner.Exec(t.Context(), "DROP SCHEMA scrip CASCADE")
	streamtest.Must(t, err)
	streamtest.Eventually(t, "the analyst reads new tables", func() bool {
		var got string
		return db.QueryRow(t.Context(), both).Scan(&got) == nil && got == masked
	})
	// The session ends with the key, whatever it holds, and soon.
	_, err = db.Exec(t.Context(), "BEGIN READ WRITE; ALTER ROLE current_user PASSWORD 'another'")
	streamtest.Must(t, err)
	p.must("access", "revoke", "eve")
	revoked := time.Now()
	if _, err := db.WaitForNotification(t.Context()); err == nil || t.Context().Err() != nil {
		t.Errorf("after the key was revoked: %v", err)
	}
	if took := time.Since(revoked); took > 2*time.Second {
		t.Errorf("the session ended %s after the key was revoked", took)
	}
	streamtest.Eventually(t, "it opens nothing", func() bool { // its role is changed a moment after its sessions end
		db, err := pgx.Connect(t.Context(), address)
		if err == nil {
			_ = db.Close(t.Context())
		}
		return err != nil
	})
	text(clear, both)
}

// TestAnAnalystReplays: the same events with a key, over HTTP, with codes as the key sees them. They are those of the tables, and
// a named replay and a data set continue where they were.
func TestAnAnalystReplays(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "replayer", "--codes", "10")
	code := p.must("claim", "replayer", "--customer", "replayer-ann")["code"].(string)
	p.row("1", "SELECT count(*)::text FROM scrip.coupon WHERE campaign = 'replayer'")
	dir := t.TempDir()
	keyFile := func(name string, more ...string) (*pgx.Conn, []string) {
		db, _, key := p.analyst(name, more...)
		file := filepath.Join(dir, name)
		streamtest.Must(t, os.WriteFile(file, []byte(key+"\n"), 0o600))
		return db, []string{"replay", "--campaign", "replayer", "--key-file", file}
	}
	db, masked := keyFile("replayer-eve")
	_, clear := keyFile("replayer-eva", "--codes", "--customers")
	named, half := keyFile("replayer-ada", "--customers")
	var mask, customer, seen string
	streamtest.Must(t, db.QueryRow(t.Context(), "SELECT code, customer_id FROM scrip.coupon WHERE campaign = 'replayer'").Scan(&mask, &customer))
	streamtest.Must(t, named.QueryRow(t.Context(), "SELECT code, customer_id FROM scrip.coupon WHERE campaign = 'replayer'").Scan(&seen, new(string)))
	streamtest.Equal(t, "the code without that right", seen, mask)
	own := p.run("replay", "--campaign", "replayer")
	seeing := p.run(clear...)
	if own.code != 0 || seeing != own {
		t.Errorf("with the right to codes: %+v\nfrom the log: %+v", seeing, own)
	}
	hidden := p.run(masked...)
	if hidden.code != 0 || !strings.Contains(hidden.out, mask) || !strings.Contains(hidden.out, customer) || strings.Contains(hidden.out, code) || strings.Contains(hidden.out, "replayer-ann") || strings.Count(hidden.out, "\n") != 2 {
		t.Errorf("without it: %+v", hidden)
	}
	if got := p.run(half...); got.code != 0 || !strings.Contains(got.out, mask) || !strings.Contains(got.out, "replayer-ann") || strings.Contains(got.out, customer) {
		t.Errorf("with the right to customers alone: %+v", got)
	}
	if got := p.run(append(slices.Clone(clear), "--customer", "replayer-ann", "--since", "2026-01-01T00:00:00Z")...); got.code != 0 || strings.Count(got.out, "\n") != 1 {
		t.Errorf("a customer: %+v", got)
	}
	file, parts := filepath.Join(dir, "all.csv"), filepath.Join(dir, "parts")
	for _, want := range []float64{2, 0, 1} {
		if want == 1 {
			p.must("claim", "replayer", "--customer", "replayer-bob")
		}
		for _, args := range [][]string{{"--name", "all", "--format", "csv", "--out", file}, {"--partition", "day", "--format", "parquet", "--out", parts},
			{"--name", "replayer", "--format", "postgres", "--postgres", p.ready().PostgresURL}} {
			if sum := p.must(append(slices.Clone(masked), args...)...); sum["events"] != want {
				t.Errorf("%v: %v, want %v events", args, sum, want)
			}
		}
	}
	own = p.run("replay", "--campaign", "replayer", "--name", "own", "--out", filepath.Join(dir, "own"))
	p.expect(cli.ExitUsage, "was started from the log itself", append(slices.Clone(masked), "--name", "own", "--out", filepath.Join(dir, "own"))...)
	p.must("access", "revoke", "replayer-eve")
	streamtest.Eventually(t, "the key is refused", func() bool {
		got := p.run(masked...)
		return got.code == cli.ExitFailed && strings.Contains(got.err, "401")
	})
}
