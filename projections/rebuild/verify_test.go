package rebuild

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// damages are what can be wrong with a row of each table: the statement, the key and the column of the difference, and how many
// rows differ.
var damages = []struct {
	sql, table, key, column, problem string
	rows                             int64
}{
	{"UPDATE scrip_tables.campaign SET redeemed = 5, claimed = 99 WHERE campaign = 'c0'", "campaign", "c0", "claimed", Changed, 1},
	{"INSERT INTO scrip_tables.campaign (campaign, status, claimed, redeemed, voided, opens_at, created_at, lane, number, per_customer, max_redemptions, generated_codes, imported_codes, highest, inheriting_live, inheriting_redeemed) VALUES ('forged', 'active', 0, 0, 0, now(), now(), 0, 9, 1, 1, 1, 0, 0, 0, 0)", "campaign", "forged", "", TooMany, 1},
	{"DELETE FROM scrip_tables.campaign WHERE campaign = 'c1'", "campaign", "c1", "", Missing, 1},
	{"UPDATE live.coupon_claim SET customer_id = 'mallory' WHERE campaign = 'c1' AND n = 5", "coupon_row", "c1/5", "customer_id", Changed, 1},
	{"UPDATE live.coupon_state SET expires_at = NULL WHERE campaign = 'c0' AND n = 4", "coupon_row", "c0/4", "expires_at", Changed, 1},
	{"INSERT INTO scrip_tables.allotment VALUES (800, 900, now(), NULL, 1, 'c0', 'forged')", "allotment", "c0/800", "", TooMany, 1},
	{"DELETE FROM live.coupon_claim WHERE campaign = 'c0' AND n = 7", "coupon_row", "c0/7", "", Missing, 1},
	{"INSERT INTO live.coupon_claim (n, claimed_at, claimed_place, segment, campaign, code, customer_id) VALUES (500, now(), 1, 0, 'c0', 'x', 'y')", "coupon_row", "c0/500", "", TooMany, 1},
	{"UPDATE live.coupon_claim SET campaign = 'zzz' WHERE campaign = 'c1' AND n = 1", "coupon_row", "c1/1", "", Missing, 2}, // and one too many
	{"INSERT INTO scrip_tables.redemption_row SELECT n, redeemed_at, rolled_back_at, sequence, 9, campaign, code, customer_id, order_id FROM scrip_tables.redemption_row WHERE campaign = 'c0' AND n = 1", "redemption_row", "c0/1/3/9", "", TooMany, 1},
	{"UPDATE scrip_tables.redemption_row SET order_id = 'other' WHERE campaign = 'c0' AND n = 1 AND line = 1", "redemption_row", "c0/1/3/1", "order_id", Changed, 1},
	{"DELETE FROM scrip_tables.redemption_row WHERE campaign = 'c0' AND n = 2", "redemption_row", "c0/2/3/2", "", Missing, 1},
	{"UPDATE live.expiry_own SET live = live + 1 WHERE campaign = 'c0'", "expiry_own", "c0/2026-01-01 02:00:00+00", "live", Changed, 1},
	{"DELETE FROM live.expiry_own WHERE campaign = 'c1'", "expiry_own", "c1/2026-01-01 02:00:00+00", "", Missing, 1},
	{"INSERT INTO live.expiry_own (due_at, live, redeemed, lane, campaign) VALUES ('2030-01-01Z', 0, 0, 0, 'c0')", "expiry_own", "c0/2030-01-01 00:00:00+00", "", TooMany, 1},
	{"UPDATE scrip_tables.reminder SET state = 'cancelled', settled_at = '2026-01-01Z' WHERE campaign = 'c0' AND r = 1", "reminder", "c0/1", "settled_at", Changed, 1},
	{"DELETE FROM scrip_tables.reminder WHERE campaign = 'c1' AND r = 1", "reminder", "c1/1", "", Missing, 1},
	{"INSERT INTO live.reminder (r, before_us, set_at, set_place, campaign, customer_id, kind, state) VALUES (9, 1, now(), 1, 'c0', 'x', 'opens', 'pending')", "reminder", "c0/9", "", TooMany, 1},
	{"INSERT INTO live.day_stats VALUES ('2026-01-09Z', 1, 1, 1, 1, 'c0', 'city', 'Oslo')", "day_stats", "c0/2026-01-09 00:00:00+00/city/Oslo", "", TooMany, 1},
	{"UPDATE scrip_tables.refusal_stats SET refused = 8 WHERE campaign = 'c1' AND reason = 'sold_out'", "refusal_stats", "1/c1/2026-01-01 00:00:00+00/sold_out", "refused", Changed, 1},
	{"DELETE FROM scrip_tables.refusal_stats WHERE campaign = 'c0' AND reason = 'sold_out'", "refusal_stats", "0/c0/2026-01-01 00:00:00+00/sold_out", "", Missing, 1},
	{"INSERT INTO scrip_tables.refusal_stats VALUES ('2026-01-01Z', 1, 0, '', 'invalid')", "refusal_stats", "0//2026-01-01 00:00:00+00/invalid", "", TooMany, 1},
	{"UPDATE scrip_tables.campaign_event SET at = at - interval '1 hour' WHERE campaign = 'c0' AND type = 'campaign.created'", "campaign_event", "c0/1048577", "at", Changed, 1},
	{"UPDATE scrip_tables.coupon_event SET by = 'forged' WHERE campaign = 'c0' AND what = 'rolled_back'", "coupon_event", "c0/2/4194305", "by", Changed, 1},
	{"DELETE FROM scrip_tables.campaign_event WHERE campaign = 'c1' AND type = 'campaign.created'", "campaign_event", "c1/1048577", "", Missing, 1},
	{"INSERT INTO scrip_tables.campaign_event VALUES (9, now(), 'c0', 'campaign.ended')", "campaign_event", "c0/9", "", TooMany, 1},
	{"UPDATE scrip_tables.coupon_event SET reason = 'none' WHERE campaign = 'c0' AND what = 'voided'", "coupon_event", "c0/3/4194306", "reason", Changed, 1},
	{"DELETE FROM scrip_tables.coupon_event WHERE campaign = 'c1' AND what = 'extended'", "coupon_event", "c1/4/6291457", "", Missing, 1},
	{"INSERT INTO scrip_tables.coupon_event (n, place, at, campaign, what) VALUES (1, 1, now(), 'c0', 'voided')", "coupon_event", "c0/1/1", "", TooMany, 1},
	{"UPDATE scrip_tables.expiry_event SET at = at - interval '1 hour' WHERE campaign = 'c0'", "expiry_event", "c0/2026-01-01 02:00:00+00", "at", Changed, 1},
	{"DELETE FROM scrip_tables.expiry_event WHERE campaign = 'c1'", "expiry_event", "c1/2026-01-01 02:00:00+00", "", Missing, 1},
	{"INSERT INTO scrip_tables.expiry_event VALUES ('2027-01-01Z', now(), 1, NULL, 'zzz')", "expiry_event", "zzz/2027-01-01 00:00:00+00", "", TooMany, 1},
	{"INSERT INTO live.removal VALUES (0, 0, 0, 'c0')", "removal", "c0", "", TooMany, 1},
	{"UPDATE scrip_tables.dead_letter SET payload = '' WHERE lane = 0 AND event_line = 4", "dead_letter", "0/6/4", "payload", Changed, 1},
	{"DELETE FROM scrip_tables.dead_letter WHERE lane = 1 AND event_line = 4", "dead_letter", "1/6/4", "", Missing, 1},
	{"INSERT INTO scrip_tables.dead_letter SELECT lane, sequence, line, 70, event_line, at, stream, reason, payload FROM scrip_tables.dead_letter WHERE lane = 0 AND event_line = 4", "dead_letter", "0/70/4", "", TooMany, 1},
}

// Each table is damaged in the three ways there are, which are found, named and put right, while the projector works: all at
// once, and one each of those that belong to no campaign of the log.
func TestDamage(t *testing.T) {
	r := filled(t)
	right := r.digest()
	untried, err := tablesOf(t.Context(), r.Pool, "scrip_1")
	streamtest.Must(t, err)
	check := func(from, to int) {
		t.Helper()
		var rows int64
		for _, d := range damages[from:to] {
			r.exec(d.sql)
			rows += d.rows
		}
		damaged := r.digest()
		for _, repair := range []bool{false, true} { // a repair describes what it finds in the same way
			got := r.verify(VerifyOptions{Limit: 1000, Repair: repair})
			if got.Total != rows {
				t.Errorf("damages %d to %d, repair %t: %d rows differ, want %d", from, to, repair, got.Total, rows)
			}
			for _, d := range damages[from:to] {
				if !slices.ContainsFunc(got.Differences, func(found Difference) bool {
					return found.Table == d.table && found.Key == d.key && found.Column == d.column && found.Problem == d.problem
				}) {
					t.Errorf("repair %t: %s: not found in %+v", repair, d.sql, got.Differences)
				}
			}
			if want := map[bool]string{false: damaged, true: right}[repair]; r.digest() != want || (len(got.Repaired) > 0) != repair {
				t.Errorf("damages %d to %d, repair %t: repaired %v:\n%swant\n%s", from, to, repair, got.Repaired, r.digest(), want)
			}
		}
		streamtest.Equal(t, "schemas", r.schemas(), "scrip")
	}
	check(0, len(damages))
	for n, d := range damages {
		untried = slices.DeleteFunc(untried, func(table string) bool { return table == d.table })
		if d.key == "forged" || strings.HasPrefix(d.key, "zzz/") || strings.HasPrefix(d.key, "0//") || d.key == "0/70/4" {
			check(n, n+1)
		}
	}
	if !slices.Equal(untried, []string{"checkpoint"}) {
		t.Errorf("not damaged: %v", untried)
	}
	r.Claim(0, 3)
	r.Claim(1, 3)
	r.synced()
	if got := r.verify(VerifyOptions{}); !got.Equal() {
		t.Errorf("after all repairs and more claims: %+v", got.Differences)
	}
}

// One campaign alone is folded and compared; what is wrong elsewhere is not looked at.
func TestOneCampaign(t *testing.T) {
	r := filled(t)
	r.exec("UPDATE live.coupon_claim SET code = 'forged' WHERE n = 2")
	got := r.verify(VerifyOptions{Campaign: "c1", Repair: true})
	if got.Total != 1 || got.Differences[0].Key != "c1/2" || got.Differences[0].Column != "code" || *got.Differences[0].Found != "forged" {
		t.Errorf("%+v", got.Differences)
	}
	if got := r.verify(VerifyOptions{}); got.Total != 1 || got.Differences[0].Key != "c0/2" {
		t.Errorf("after the repair of c1: %+v", got.Differences)
	}
	s := r.open(Options{})
	defer s.Close()
	if _, err := s.Verify(t.Context(), VerifyOptions{Campaign: "nowhere"}); err == nil || !strings.Contains(err.Error(), "neither in the log") {
		t.Errorf("an unknown campaign: %v", err)
	}
}

// Large groups are compared piece by piece, and at most Limit rows are listed.
func TestLargeGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.project()
	r.Write(0, projtest.Created("c0", 0, ""))
	for range 5 {
		r.Claim(0, 1000)
	}
	r.synced()
	r.exec("UPDATE live.coupon_claim SET code = 'forged', customer_id = 'mallory' WHERE n % 1000 = 1")
	r.exec("DELETE FROM live.coupon_claim WHERE n IN (4095, 4096, 5000)")
	got := r.verify(VerifyOptions{Limit: 5})
	columns := map[string]int{} // by row
	for _, d := range got.Differences {
		columns[d.Key]++
		if d.Problem == Changed {
			columns[d.Key] += 10
		}
	}
	if got.Total != 8 || got.Listed != 5 || len(columns) != 5 {
		t.Errorf("%d rows differ, %d listed, namely %v", got.Total, got.Listed, columns)
	}
	for key, n := range columns {
		if n != 1 && n != 22 {
			t.Errorf("row %s is not listed with both of its changed columns: %+v", key, got.Differences)
		}
	}
	for _, table := range got.Tables {
		if table.Table == "coupon_row" && (table.Rows != 4997 || table.Expected != 5000 || table.Changed != 5 || table.Missing != 3 || table.TooMany != 0) {
			t.Errorf("%+v", table)
		}
	}
	if got := r.verify(VerifyOptions{Repair: true}); len(got.Repaired) != 1 {
		t.Errorf("repaired %v", got.Repaired)
	}
	if got := r.verify(VerifyOptions{}); !got.Equal() {
		t.Errorf("after the repair: %+v", got.Differences)
	}
}

// What cannot be repaired campaign by campaign is found, reported and not changed. A rebuild needs no whole, current tables
// that are of this log to exchange them, and a projector that has stopped goes on.
func TestNotRepairable(t *testing.T) {
	r := filled(t)
	right := r.digest()
	for name, c := range map[string]struct{ damage, table, problem, notCompared string }{
		"checkpoint ahead of the log":  {"UPDATE scrip_tables.checkpoint SET sequence = sequence + 100 WHERE lane = 1", "checkpoint", NotInLog, "were not filled from this log"},
		"another message at its place": {"UPDATE scrip_tables.checkpoint SET digest = repeat('0', 32) WHERE lane = 1", "checkpoint", NotInLog, "were not filled from this log"},
		"another log":                  {"UPDATE scrip_tables.checkpoint SET log = 'other'", "checkpoint", NotInLog, "were not filled from this log"},
		"checkpoint gone":              {"DROP TABLE live.checkpoint CASCADE", "", "", "incomplete"},
		"table gone":                   {"DROP TABLE live.redemption_row CASCADE", "redemption_row", TableMissing, ""},
		"what hides rows gone":         {"DROP TABLE live.leaving CASCADE", "leaving", TableMissing, "incomplete"},
		"column gone":                  {"ALTER TABLE live.refusal_stats DROP COLUMN refused CASCADE", "refusal_stats", ColumnMissing, ""},
	} {
		r.exec(c.damage)
		s := r.open(Options{})
		if c.table != "" {
			got, err := s.Verify(t.Context(), VerifyOptions{})
			if err != nil || got.Equal() || got.Differences[0].Table != c.table || got.Differences[0].Problem != c.problem {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			if _, err := s.Verify(t.Context(), VerifyOptions{Repair: true}); err == nil || !strings.Contains(err.Error(), "run `scrip rebuild`") {
				t.Errorf("%s: repair: %v", name, err)
			}
		}
		got, err := s.Rebuild(t.Context())
		s.Close()
		if err != nil || !strings.Contains(got.NotCompared, c.notCompared) || (c.notCompared == "") != (got.NotCompared == "") {
			t.Errorf("%s: not compared: %q, want %q, %v", name, got.NotCompared, c.notCompared, err)
		}
		if r.digest() != right {
			t.Errorf("%s: rebuilt\n%swant\n%s", name, r.digest(), right)
		}
	}
	r.Claim(0, 1)
	r.Claim(1, 1)
	r.synced()
	if got := r.verify(VerifyOptions{}); !got.Equal() {
		t.Errorf("the projector does not go on: %+v", got.Differences)
	}
}

// A lane with events and without a checkpoint, or with one that cannot be seen, is a difference, and no empty lane: nothing would be
// compared with nothing. Nor are previous tables put in use without one.
func TestLaneWithoutCheckpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.rebuild(Options{})
	r.exec("DELETE FROM live.checkpoint")
	if got := r.verify(VerifyOptions{}); !got.Equal() || len(got.Positions) > 0 {
		t.Errorf("of an empty log: %+v", got)
	}
	stop := r.project()
	r.Work()
	r.synced()
	stop()
	now, err := schema.Current(t.Context(), r.Pool)
	streamtest.Must(t, err)
	r.exec("DELETE FROM live.checkpoint WHERE lane = 1")
	s := r.open(Options{})
	defer s.Close()
	got, err := s.Verify(t.Context(), VerifyOptions{})
	if err != nil || got.Total != 1 || got.Differences[0].Table != checkpointTable || got.Differences[0].Key != "1" || got.Differences[0].Problem != Missing ||
		len(got.Positions) != 1 || got.Positions[0].Lane != 0 {
		t.Errorf("lost: %+v, %v", got, err)
	}
	if _, err := s.Verify(t.Context(), VerifyOptions{Repair: true}); !errors.Is(err, ErrNotRepairable) || !strings.Contains(err.Error(), "lane 1 has no checkpoint") {
		t.Errorf("repaired: %v", err)
	}
	r.onTables(r.URL, now.Live, "ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
	got, err = s.Verify(t.Context(), VerifyOptions{Limit: 1000})
	if err != nil || got.Total < 50 || len(got.Positions) > 0 {
		t.Errorf("hidden: %+v, %v", got, err)
	}
	if !slices.ContainsFunc(got.Differences, func(d Difference) bool {
		return d.Table == "campaign" && d.Key == "row security" && d.Problem == DefinitionChanged && *d.Found == "forced, enabled"
	}) {
		t.Errorf("hidden, and by what: %+v", got.Differences)
	}
	for range 2 { // so that there are previous ones
		if _, err := s.Rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.exec("DELETE FROM previous.checkpoint WHERE lane = 1")
	if err := s.Undo(t.Context()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "the previous tables have no checkpoint of lane 1; run `scrip rebuild` instead") {
		t.Errorf("undone: %v", err)
	}
}

// Claims that arrive while it verifies and repairs are neither taken for damage, nor lost or doubled.
func TestVerifyDuringLiveEvents(t *testing.T) {
	r := filled(t)
	r.exec("DELETE FROM live.coupon_claim WHERE n < 4")
	opts := Options{Hook: func(Phase) error {
		r.Claim(0, 2)
		r.Claim(1, 2)
		return nil
	}}
	if got := r.verifyWith(opts, VerifyOptions{}); got.Total != 6 {
		t.Errorf("found %d differences, want the 6 coupons deleted: %+v", got.Total, got.Differences)
	}
	if got := r.verifyWith(opts, VerifyOptions{Repair: true}); fmt.Sprint(got.Repaired) != "[c0 c1]" {
		t.Errorf("repaired %v", got.Repaired)
	}
	r.synced()
	if got := r.verifyWith(opts, VerifyOptions{}); !got.Equal() {
		t.Errorf("after the repair: %+v", got.Differences)
	}
}

// Tables whose checkpoint went back while they were compared would get the events in between twice, were they repaired.
func TestRepairOfTablesThatAdvanced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stop := r.project()
	r.Work()
	r.synced()
	stop()
	r.exec("UPDATE live.coupon_claim SET customer_id = 'another' WHERE n = 1")
	once := false
	s := r.open(Options{Hook: func(p Phase) error {
		if p == Comparing && !once {
			once = true
			r.exec("UPDATE scrip_tables.checkpoint SET sequence = sequence - 1, digest = repeat('0', 32) WHERE lane = 1")
		}
		return nil
	}})
	if _, err := s.Verify(t.Context(), VerifyOptions{Repair: true}); !errors.Is(err, ErrNotRepairable) || !once {
		t.Errorf("repair: %v", err)
	}
	s.Close()
	if got := r.verify(VerifyOptions{}); got.Equal() {
		t.Error("it was repaired all the same")
	}
}

// An event that meets a damaged row while a repair is at work is parked by the live projector; the repair puts that right,
// too, for all campaigns and for one.
func TestRepairRenewsDeadLetters(t *testing.T) {
	r := filled(t)
	for n, opts := range map[int]VerifyOptions{7: {Repair: true}, 8: {Repair: true, Campaign: "c0"}} {
		r.exec("DELETE FROM live.coupon_claim WHERE campaign = 'c0' AND n = $1", n)
		once := false
		got := r.verifyWith(Options{Hook: func(p Phase) error {
			if p == Comparing && !once {
				once = true
				r.Write(0, fmt.Sprintf(`{"type":"coupon.redeemed","campaign":"c0","at":"@","n":%d,"code":"x","order_id":"o","redeemed_count":1}`, n))
				r.synced()
				if n := r.text("SELECT count(*)::text FROM scrip.dead_letter WHERE stream = 'SCRIP_EVT_0'"); n != "2" {
					t.Errorf("%s events parked, want that of the log and one more", n)
				}
			}
			return nil
		}}, opts)
		if fmt.Sprint(got.Repaired) != "[c0]" || len(got.Notes) == 0 || !strings.Contains(got.Notes[len(got.Notes)-1], "events conflicted with damaged rows meanwhile: 4 more rows were written") {
			t.Errorf("repaired %v, notes %v", got.Repaired, got.Notes)
		}
		streamtest.Equal(t, "the coupon", r.text("SELECT status FROM scrip.coupon WHERE campaign = 'c0' AND n = $1", n), "redeemed")
		if again := r.verify(VerifyOptions{}); !again.Equal() {
			t.Errorf("after the repair: %+v", again.Differences)
		}
	}
}

// Rows may be right and answers wrong: indexes, keys, constraints, the view and functions are compared, too. What others made is
// left alone.
func TestDefinitions(t *testing.T) {
	r := filled(t)
	r.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = scrip, public', current_database()); END $$`)
	r.exec("CREATE INDEX analyst_idx ON live.coupon_claim (claimed_at)")
	r.exec("CREATE VIEW scrip.analyst_view AS SELECT count(*) FROM scrip.coupon")
	if got := r.verify(VerifyOptions{}); !got.Equal() {
		t.Errorf("nothing is wrong: %+v", got.Differences)
	}
	r.exec("DROP INDEX live.coupon_claim_0_code")
	r.exec("ALTER TABLE live.redemption_row DROP CONSTRAINT redemption_row_key")
	r.exec("ALTER TABLE live.campaign DROP CONSTRAINT campaign_status_is_known, ADD CONSTRAINT campaign_status_is_known CHECK (status <> 'x')")
	r.exec("DROP FUNCTION scrip.backlog()")
	r.exec(`CREATE OR REPLACE VIEW scrip.coupon AS SELECT r.campaign, r.n, r.code, r.customer_id, 'claimed'::text AS status, r.claimed_at,
		coalesce(r.expires_at, c.expires_at) AS expires_at, r.redeemed_count, r.redeemed_at, r.voided_at, r.void_reason, r.attributes
		FROM scrip_tables.coupon_row r JOIN scrip.campaign c ON c.campaign = r.campaign`)
	got := r.verify(VerifyOptions{})
	var found []string
	for _, d := range got.Differences {
		found = append(found, fmt.Sprintf("%s %s: %s", d.Table, d.Key, d.Problem))
	}
	slices.Sort(found)
	want := []string{
		" function backlog(): definition missing", "campaign constraint campaign_status_is_known: definition changed", "coupon view coupon: definition changed",
		"coupon_claim_0 index coupon_claim_0_code: definition missing", "redemption_row constraint redemption_row_key: definition missing",
	}
	if !slices.Equal(found, want) || got.Total != int64(len(want)) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
	s := r.open(Options{})
	defer s.Close()
	if _, err := s.Verify(t.Context(), VerifyOptions{Repair: true}); !errors.Is(err, ErrNotRepairable) {
		t.Errorf("repair: %v", err)
	}
	if _, err := s.Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if got := r.verify(VerifyOptions{}); !got.Equal() {
		t.Errorf("after a rebuild: %+v", got.Differences)
	}
}
