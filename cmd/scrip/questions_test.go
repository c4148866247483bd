package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// questions are the blocks of code below the numbered headings of ANALYSTS.md, by number.
func questions(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../projections/ANALYSTS.md")
	streamtest.Must(t, err)
	all := map[string]string{}
	for _, part := range strings.Split(string(page), "\n### ") {
		number, rest, is := strings.Cut(part, ". ")
		if _, err := strconv.Atoi(number); is && err == nil {
			_, block, _ := strings.Cut(rest, "```")
			_, block, _ = strings.Cut(block, "\n")
			all[number], _, _ = strings.Cut(block, "\n```")
		}
	}
	if len(all) != 10 {
		t.Fatalf("ANALYSTS.md answers %d questions", len(all))
	}
	return all
}

// answer is the rows of a query as text.
func answer(t *testing.T, db *pgx.Conn, sql string) (lines []string) {
	t.Helper()
	rows, err := db.Query(t.Context(), sql)
	streamtest.Must(t, err)
	for rows.Next() {
		values, err := rows.Values()
		streamtest.Must(t, err)
		var texts []string
		for _, v := range values {
			switch v := v.(type) {
			case nil:
				texts = append(texts, "-")
			case time.Time:
				texts = append(texts, v.UTC().Format(time.DateOnly))
			case pgtype.Interval:
				texts = append(texts, (time.Duration(v.Microseconds) * time.Microsecond).String())
			case pgtype.Numeric:
				raw, err := v.MarshalJSON()
				streamtest.Must(t, err)
				texts = append(texts, string(raw))
			default:
				texts = append(texts, fmt.Sprint(v))
			}
		}
		lines = append(lines, strings.Join(texts, " "))
	}
	if err := rows.Err(); err != nil {
		t.Errorf("%s: %v", sql, err)
	}
	return lines
}

// at is when the events of a campaign happened, by type and number of the coupon.
func (p *process) at(campaign string) map[string]time.Time {
	p.t.Helper()
	all := map[string]time.Time{}
	for line := range strings.Lines(p.run("replay", "--campaign", campaign, "--type", "coupon.claimed", "--type", "coupon.redeemed").out) {
		var e struct {
			Type string
			N    int
			At   time.Time
		}
		streamtest.Must(p.t, json.Unmarshal([]byte(line), &e))
		if key := fmt.Sprint(strings.TrimPrefix(e.Type, "coupon."), e.N); all[key].IsZero() {
			all[key] = e.At
		}
	}
	return all
}

// TestTenQuestions: what an analyst asks first is answered from ANALYSTS.md with a key. The answers are counted by hand from the
// commands; the log has their times alone.
func TestTenQuestions(t *testing.T) {
	p := shared(t)
	const summer, doomed, food, friday = "asked", "asked-doomed", "asked-food", "asked_friday"
	ask := questions(t)
	db, _, _ := p.analyst("asked-eve", "--customers")
	p.must("campaign", "create", summer, "--codes", "10", "--per-customer", "0", "--category", food, "--benefit", `{"amount":5}`, "--opens", "+1h")
	p.must("campaign", "create", doomed, "--codes", "10", "--category", food, "--benefit", `{"amount":5}`, "--valid-for", "1s")
	for _, customer := range []string{"asked-1", "asked-2", "asked-3"} {
		p.must("claim", doomed, "--customer", customer)
	}
	for customer, before := range map[string]string{"asked-ann": "3m", "asked-bob": "3m", "asked-cleo": "1m"} {
		p.must("remind", summer, "--customer", customer, "--kind", "opens", "--before", before)
	}
	p.must("campaign", "update", summer, "--opens", time.Now().UTC().Format(time.RFC3339Nano)) // they fire now
	p.row("3", "SELECT count(*)::text FROM scrip.reminder WHERE campaign = $1 AND state = 'fired'", summer)
	claim := func(customer, channel string) string {
		t.Helper()
		return p.must("claim", summer, "--customer", "asked-"+customer, "--attributes", `{"channel":"`+channel+`"}`)["code"].(string)
	}
	ann, bob := claim("ann", "app"), claim("bob", "web")
	p.must("redeem", ann, "--order", "o1")
	until := time.Now().UTC().Format(time.RFC3339Nano)
	cleo, dan := claim("cleo", "shop"), claim("dan", "web")
	claim("ann", "web")
	p.must("redeem", cleo, "--order", "o2")
	for _, order := range []string{"o3", "o4"} {
		p.must("redeem", dan, "--order", order)
		p.must("rollback", dan, "--order", order)
	}
	_, sue := p.keyURL("asked-sue", "support", "--codes")
	extended := time.Now().UTC()
	done(t, nil, "extend", bob, "--expires", "+72h", "--nats", sue)
	for range 2 {
		p.expect(cli.ExitRefused, "already_redeemed", "redeem", ann, "--order", "o9")
	}
	p.expect(cli.ExitRefused, "not_redeemed", "rollback", bob, "--order", "o9")
	p.row("3", "SELECT sum(refused)::text FROM scrip.refusal_stats WHERE campaign = $1", summer)
	p.row("3", "SELECT expired::text FROM scrip.campaign WHERE campaign = $1", doomed)
	p.must("rebuild", "--until", until, "--schema", friday)

	of, ofDoomed := p.at(summer), p.at(doomed)
	took := func(n int) string {
		return of[fmt.Sprint("redeemed", n)].Sub(of[fmt.Sprint("claimed", n)]).Truncate(time.Microsecond).String()
	}
	// In one week and one month, unless the test runs at their end: then there are several rows, of which each has a part.
	week, month := of["claimed1"].Truncate(7*24*time.Hour), of["claimed1"]
	if w, last := of["claimed5"].Truncate(7*24*time.Hour), of["redeemed4"]; w != week || last.Month() != month.Month() || ofDoomed["claimed1"].Truncate(7*24*time.Hour) != week {
		t.Skip("a week or a month ended while the test ran")
	}
	cohort := month.AddDate(0, 0, 1-month.Day()).Format(time.DateOnly)
	for number, want := range map[string][]string{
		"1":  {food + " " + week.Format(time.DateOnly) + " 8 2 25.0"},
		"2":  {"app 1 1 " + took(1), "shop 1 1 " + took(3), "web 3 0 -"},
		"3":  {cohort + " " + cohort + " 7 8"},
		"4":  {"channel web 3 0", "channel app 1 1", "channel shop 1 1"},
		"5":  {summer + " 5 0 0 0", doomed + " 3 3 100.0 15"},
		"6":  {"already_redeemed 2", "not_redeemed 1"},
		"7":  {"opens 1m0s 1 1", "opens 3m0s 2 1"},
		"8":  {"asked-dan 2 2"},
		"9":  {summer + " 2 1 0", doomed + " 3 0 0"},
		"10": {extended.Format(time.DateOnly) + " asked-sue 2 " + extended.Add(72*time.Hour).Format(time.DateOnly)},
	} {
		sql := strings.NewReplacer("'summer'", "'"+summer+"'", "'winter'", "'"+doomed+"'", "'food'", "'"+food+"'", "friday.", friday+".").Replace(ask[number])
		got := answer(t, db, sql)
		if number == "1" { // of all categories
			got = slices.DeleteFunc(got, func(line string) bool { return !strings.HasPrefix(line, food) })
		}
		streamtest.Equal(t, "question "+number, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestProjectionsOfAnalysts: the file of ANALYSTS.md makes a projection where the page shows it: an operator's in scrip's PostgreSQL,
// which analysts read, and an analyst's in another database. With the user of a key it is refused, with the way there.
func TestProjectionsOfAnalysts(t *testing.T) {
	p := shared(t)
	page, err := os.ReadFile("../../projections/ANALYSTS.md")
	streamtest.Must(t, err)
	_, text, _ := strings.Cut(string(page), "```sql\n-- scrip: name daily_claims\n")
	text, _, found := strings.Cut("-- scrip: name daily_claims\n"+text, "```")
	if !found {
		t.Fatal("ANALYSTS.md has no projection")
	}
	dir := t.TempDir()
	p.must("campaign", "create", "projected", "--codes", "10")
	p.must("claim", "projected", "--customer", "projected-ann")
	db, address, key := p.analyst("projected-eve")
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		streamtest.Must(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	daily, keyFile := write("daily_claims.sql", text), write("eve.key", key)
	p.must("replay", "--sql", daily, "--campaign", "projected")
	const sql = "select * from daily_claims.claims"
	want := time.Now().UTC().Format(time.DateOnly) + " 1"
	streamtest.Equal(t, "an analyst reads", strings.Join(answer(t, db, sql), "\n"), want)

	p.expect(cli.ExitFailed, "only reads here. A projection of yours goes into a PostgreSQL of yours", "replay", "--sql", daily, "--key-file", keyFile, "--postgres", address)
	_, err = p.postgres().Exec(t.Context(), "CREATE DATABASE mine")
	streamtest.Must(t, err)
	own := strings.Replace(p.ready().PostgresURL, "/scrip?", "/mine?", 1)
	mine := write("mine.sql", strings.Replace(text, "-- scrip: readers analyst\n", "", 1))
	args := []string{"--campaign", "projected", "--key-file", keyFile, "--postgres", own}
	p.expect(cli.ExitFailed, "in another one remove the line of readers", append([]string{"replay", "--sql", daily}, args...)...)
	p.must(append([]string{"replay", "--sql", mine}, args...)...)
	theirs, err := pgx.Connect(t.Context(), own)
	streamtest.Must(t, err)
	streamtest.Equal(t, "in a database of hers", strings.Join(answer(t, theirs, sql), "\n"), want)
	streamtest.Must(t, theirs.Close(t.Context()))
}
