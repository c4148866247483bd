package rebuild

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// large is a rig with a campaign of several pieces on lane 0, in sealed segments, and printed coupons, with a projector at work.
func large(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	r := newRig(t)
	r.project()
	r.Work()
	for range 5 {
		r.Claim(0, 1000)
	}
	r.Write(0, `{"type":"coupons.allotted","campaign":"c0","at":"@","batch":"b","from_n":50001,"through_n":50010}`)
	r.Write(0, `{"type":"coupon.redeemed","campaign":"c0","at":"@","n":50001,"code":"p","customer_id":"ann","order_id":"o","redeemed_count":1}`)
	r.synced()
	r.rebuild(Options{Limits: fill.Limits{Lines: 5000}})
	return r
}

// wrong damages coupons in all ways that there are, and what else a campaign has, and returns how many rows differ.
func (r *rig) wrong() int64 {
	r.T.Helper()
	for _, sql := range []string{
		"UPDATE live.coupon_claim SET customer_id = 'mallory' WHERE campaign = 'c0' AND n IN (4200, 50001)",
		"DELETE FROM live.coupon_claim WHERE campaign = 'c0' AND n = 4300",
		"INSERT INTO live.coupon_claim (n, claimed_at, claimed_place, segment, campaign, code, customer_id) VALUES (20000, now(), 1, 0, 'c0', 'x', 'y')",
		`INSERT INTO live.coupon_claim (n, claimed_at, expires_at, claimed_place, segment, campaign, code, customer_id, attributes)
			SELECT n, claimed_at, expires_at, claimed_place, 0, campaign, code, customer_id, attributes FROM live.coupon_claim WHERE campaign = 'c0' AND n = 4400`,
		"UPDATE scrip_tables.redemption_row SET order_id = 'other' WHERE campaign = 'c0' AND n = 1 AND line = 1",
		"DELETE FROM scrip_tables.reminder WHERE campaign = 'c0' AND r = 1",
		"UPDATE scrip_tables.campaign SET claimed = 9999 WHERE campaign = 'c0'",
	} {
		r.exec(sql)
	}
	return 8
}

// How many coupons were written since a transaction, and how many others than printed ones are in segment 0.
const (
	writtenSQL = "SELECT count(*)::text FROM live.coupon_claim WHERE xmin::text::bigint >= $1::text::bigint"
	loneSQL    = "SELECT count(*)::text FROM live.coupon_claim_0 WHERE n < 50000"
	wholeSQL   = "SELECT concat_ws(' ', count(*), count(DISTINCT n)) FROM scrip.coupon WHERE campaign = 'c0' AND n NOT IN (4300, 4400, 20000)"
)

// A repair writes the rows that differ and no other one, and leaves coupons where they were, or where segments are merged. A piece
// holds its lane alone: the other one goes on, and so does a reader.
func TestRepairByPieces(t *testing.T) {
	for _, opts := range []VerifyOptions{{Repair: true}, {Repair: true, Campaign: "c0"}} {
		t.Run("campaign "+opts.Campaign, func(t *testing.T) {
			r := large(t)
			right := r.digest()
			differ := r.wrong()
			before := r.text("SELECT pg_current_xact_id()::text")
			reader, err := r.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			streamtest.Must(t, err)
			defer reader.Rollback(context.Background()) //nolint:errcheck
			var read [2]string
			streamtest.Must(t, reader.QueryRow(t.Context(), wholeSQL).Scan(&read[0]))
			steps := 0
			got := r.verifyWith(Options{Limits: fill.Limits{Lines: 5000}, Hook: func(p Phase) error {
				if p == Repairing {
					steps++
				}
				return nil
			}}, opts)
			if got.Total != differ || fmt.Sprint(got.Repaired) != "[c0]" {
				t.Errorf("%d rows differ, want %d; repaired %v", got.Total, differ, got.Repaired)
			}
			streamtest.Equal(t, "coupons written", r.text(writtenSQL, before), "4")
			streamtest.Equal(t, "coupons in segment 0", r.text(loneSQL), "0")
			streamtest.Must(t, reader.QueryRow(t.Context(), wholeSQL).Scan(&read[1]))
			streamtest.Equal(t, "what a reader sees", read[1], read[0])
			streamtest.Equal(t, "digests", r.digest(), right)
			if least := 5; steps < least || steps > 2*least {
				t.Errorf("%d steps", steps)
			}
			// The lanes: what is wrong is of lane 0.
			r.wrong()
			moved := 0
			r.verifyWith(Options{Limits: fill.Limits{Lines: 5000}, Hook: func(p Phase) error {
				if p == Repairing && moved < 3 {
					moved++
					r.Claim(0, 1)
					last := r.Claim1()
					projtest.Reached(t, r.Pool, 1, last)
					streamtest.Equal(t, "other coupons", r.text(wholeSQL), r.text("SELECT concat_ws(' ', count(DISTINCT n), count(DISTINCT n)) FROM scrip.coupon WHERE campaign = 'c0' AND n NOT IN (4300, 4400, 20000)"))
				}
				return nil
			}}, opts)
			r.synced()
			if got := r.verify(VerifyOptions{}); !got.Equal() || moved != 3 {
				t.Errorf("after a repair beside claims: %+v", got.Differences)
			}
		})
	}
}

// A repair ends although its lane moves between any two steps: in each, which locks it out, its projector waits to apply a claim.
func TestRepairBesideSteadyClaims(t *testing.T) {
	r := filled(t)
	r.exec("UPDATE live.coupon_claim SET customer_id = 'mallory' WHERE campaign = 'c0' AND n = 5")
	const waits = `SELECT (count(*) > 0)::text FROM pg_stat_activity
		WHERE datname = current_database() AND application_name NOT LIKE 'scrip rebuild%' AND wait_event_type = 'Lock'`
	got := r.verifyWith(Options{Hook: func(p Phase) error {
		if p == Repairing || p == CatchingUp {
			r.Claim(0, 1)
			streamtest.Eventually(t, "the projector waits for the lane", func() bool { return r.text(waits) == "true" })
		}
		return nil
	}}, VerifyOptions{Repair: true, Campaign: "c0"})
	if got.Total != 1 || fmt.Sprint(got.Repaired) != "[c0]" {
		t.Errorf("%d rows differ, repaired %v", got.Total, got.Repaired)
	}
	r.synced()
	if got := r.verify(VerifyOptions{Campaign: "c0"}); !got.Equal() {
		t.Errorf("after a repair beside claims: %+v", got.Differences)
	}
}

// Claim1 claims on lane 1, and returns the message.
func (r *rig) Claim1() uint64 {
	r.Claim(1, 1)
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.Last[1]
}

// A repair that dies in a step, or after one, leaves whole pieces that are right, and the next one repairs the others.
func TestRepairIsKilled(t *testing.T) {
	r := filled(t)
	right, left := r.digest(), int64(5)
	r.exec("UPDATE live.coupon_claim SET customer_id = 'mallory' WHERE n = 5") // of both lanes
	r.exec("DELETE FROM scrip_tables.reminder WHERE campaign = 'c0' AND r = 1")
	r.exec("UPDATE scrip_tables.campaign SET claimed = 9999 WHERE campaign = 'c0'")
	r.exec("UPDATE live.expiry_own SET live = live + 1 WHERE campaign = 'c1'")
	for try := 0; left > 0; try++ {
		repaired, died := 0, false
		ctx, cancel := context.WithCancel(t.Context())
		s := r.open(Options{Hook: func(p Phase) error {
			switch {
			case died:
			case p == Repairing && try%3 == 1: // in the first step
				died = true
				r.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'scrip rebuild%' AND datname = current_database()")
			case p == Repairing && repaired == 0:
				repaired++
			case p == Repairing && try%3 == 0, p == CatchingUp && repaired > 0: // in the second one, or after the first
				died = true
				cancel()
			}
			return nil
		}})
		got, err := s.Verify(ctx, VerifyOptions{Repair: true})
		s.Close()
		cancel()
		if got.Total != left {
			t.Errorf("try %d: %d rows differ, want %d", try, got.Total, left)
		}
		switch {
		case !died:
			left = 0
		case err == nil:
			t.Errorf("try %d: no error", try)
		case repaired > 0:
			left--
		}
		if try > 20 {
			t.Fatal("it does not end")
		}
	}
	streamtest.Equal(t, "digests", r.digest(), right)
}

// Coupons that have left the tables do not come back with a repair of their campaign.
func TestRepairOfWhatHasLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, err := projector.New(r.Pool, r.JS, r.Log, projector.Options{Logger: quiet, Clock: projtest.Hurried, Keep: func() int { return 30 }})
	streamtest.Must(t, err)
	streamtest.Background(t, p.Run)
	r.Write(0, projtest.Created("c0", 0, `,"expires_at":"2026-01-02T00:00:00Z"`))
	r.synced()
	streamtest.Eventually(t, "the setting is in the tables", func() bool { return r.text("SELECT keep_days::text FROM scrip_meta.format") == "30" })
	r.Claim(0, 5)
	r.Clock = r.Clock.AddDate(0, 0, 1)
	r.Write(0, `{"type":"coupons.expired","campaign":"c0","at":"@","through":"2026-01-02T00:00:00Z","count":5}`)
	r.Clock = r.Clock.AddDate(0, 0, 40)
	r.Write(0, projtest.Created("other", 2, ""))
	r.Write(0, `{"type":"campaign.updated","campaign":"c0","at":"@","number":0,"codes":100,"max_redemptions":1,"expires_at":"2026-06-01T00:00:00Z"}`)
	r.Claim(0, 5)
	r.synced()
	const stored = "SELECT count(*)::text FROM live.coupon_claim WHERE campaign = 'c0' AND n <= 5"
	streamtest.Equal(t, "coupons that left, as they are stored", r.text(stored), "5")
	right := r.digest()
	r.exec("UPDATE live.coupon_claim SET code = 'forged' WHERE campaign = 'c0' AND n IN (2, 7)")
	r.exec("DELETE FROM live.removal WHERE campaign = 'c0'")
	got := r.verify(VerifyOptions{Repair: true, Campaign: "c0"})
	if got.Total != 7 { // five that have come back, one that is forged, one removal
		t.Errorf("%d rows differ: %+v", got.Total, got.Differences)
	}
	streamtest.Equal(t, "digests", r.digest(), right)
	streamtest.Equal(t, "coupons that left, as they are stored", r.text(stored), "5")
	streamtest.Equal(t, "coupons", r.text("SELECT concat_ws(' ', count(*), min(n)) FROM scrip.coupon WHERE campaign = 'c0'"), "5 6")
	r.exec("DELETE FROM live.coupon_claim WHERE campaign = 'c0' AND n <= 5") // as when their segment is rewritten
	r.exec("UPDATE live.coupon_claim SET code = 'forged' WHERE campaign = 'c0' AND n = 7")
	r.verify(VerifyOptions{Repair: true, Campaign: "c0"})
	streamtest.Equal(t, "digests after their segment was rewritten", r.digest(), right)
	streamtest.Equal(t, "coupons that left, as they are stored then", r.text(stored), "0")
	for _, table := range r.rebuild(Options{}).Tables {
		if !table.Equal {
			t.Errorf("rebuilt: %+v", table)
		}
	}
}

// A repair brings back what has left by another setting than the log's, also while its rows are hidden and some are deleted.
func TestRepairOfWhatShouldNotLeave(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stop := r.project()
	r.Work()
	r.synced()
	stop() // it would go on to delete
	right := r.digest()
	r.exec("INSERT INTO live.removal (campaign, through, redeemed, expired) VALUES ('c0', 5, 1, 0)")
	r.exec("INSERT INTO live.leaving (campaign, through, reminders, expiries) SELECT campaign, 5, 2, 'infinity' FROM live.campaign")
	r.exec("DELETE FROM live.redemption_row WHERE campaign = 'c0' AND n = 2")
	if r.digest() == right {
		t.Error("nothing is hidden")
	}
	r.verify(VerifyOptions{Repair: true})
	streamtest.Equal(t, "digests", r.digest(), right)
	streamtest.Equal(t, "campaigns with rows to delete", r.text("SELECT count(*)::text FROM live.leaving"), "0")
}
