package segments

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// fold makes a schema that has the coupons of campaign c0 as they are now, in one young segment, and returns its name.
func (r *rig) fold() (name string) {
	r.t.Helper()
	ctx := r.t.Context()
	streamtest.Must(r.t, pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) (err error) {
		name, err = schema.Make(ctx, tx)
		return err
	}))
	s, err := Open(ctx, r.pool, name, Options{})
	streamtest.Must(r.t, err)
	segment, done, err := s.Take(ctx, 1)
	streamtest.Must(r.t, err)
	defer done()
	_, err = r.pool.Exec(ctx, `INSERT INTO `+name+`.coupon_claim (n, claimed_at, expires_at, claimed_place, segment, campaign, code, customer_id, attributes)
		SELECT n, claimed_at, expires_at, claimed_place, $1, campaign, code, customer_id, attributes FROM scrip_tables.coupon_row WHERE campaign = 'c0'`, segment)
	streamtest.Must(r.t, err)
	return name
}

// replace replaces coupons of campaign c0 by what a schema has.
func (r *rig) replace(from string, numbers ...int64) (written int64, err error) {
	r.t.Helper()
	err = pgx.BeginFunc(r.t.Context(), r.pool, func(tx pgx.Tx) (err error) {
		written, err = Replace(r.t.Context(), tx, "scrip_1", from, "c0", numbers)
		return err
	})
	return written, err
}

// Coupons are replaced in their segments, and missing ones go to a sealed one, also while a copy of these waits for a reader: it is
// given up, and what was replaced is in the next one.
func TestReplaceBesideMerges(t *testing.T) {
	r := newRig(t)
	r.sealed(9)
	s := r.open(Options{})
	from := r.fold()
	r.exec("UPDATE scrip_1.coupon_claim SET customer_id = 'mallory' WHERE campaign = 'c0' AND n = 5")
	r.exec("DELETE FROM scrip_1.coupon_claim WHERE campaign = 'c0' AND n = 100")
	const apart = 801 // in the segment that is not merged
	r.exec("UPDATE scrip_1.coupon_claim SET customer_id = 'mallory' WHERE campaign = 'c0' AND n = 801")
	reader, err := r.pool.Begin(t.Context())
	streamtest.Must(t, err)
	_, err = reader.Exec(t.Context(), "SELECT count(*) FROM scrip.coupon")
	streamtest.Must(t, err)
	streamtest.Must(t, s.mergeSome(t.Context()))
	if s.copied == nil {
		t.Error("the copy does not wait for the reader")
	}
	_, err = r.replace(from, apart)
	streamtest.Must(t, err)
	streamtest.Equal(t, "copies that wait after a change of another segment", r.text(`SELECT count(*)::text FROM scrip_1.segment
		WHERE merged_at IS NOT NULL AND merged_by IS NULL`), "1")
	written, err := r.replace(from, 5, 100)
	streamtest.Must(t, err)
	streamtest.Equal(t, "rows removed and written", written, int64(3))
	r.whole()
	streamtest.Must(t, reader.Rollback(t.Context()))
	streamtest.Must(t, s.swap(t.Context()))
	r.whole()
	streamtest.Equal(t, "live segments: 0 and those that were not merged", r.text(live), "10")
	streamtest.Must(t, s.mergeSome(t.Context()))
	streamtest.Equal(t, "live segments after the next merge", r.text(live), "3")
	r.exec("DROP SCHEMA " + from + " CASCADE")
	streamtest.Must(t, s.remove(t.Context()))
	streamtest.Equal(t, "the others are dropped", r.text(allDropped), "true")
	r.whole()
	streamtest.Equal(t, "its customer", r.text("SELECT customer_id FROM scrip.coupon WHERE campaign = 'c0' AND n = 5"), "customer-5")
	streamtest.Equal(t, "coupons in segment 0", r.text("SELECT count(*)::text FROM scrip_1.coupon_claim_0"), "0")
}

// Coupons that had left, and have not any more, are not lost with a copy that was made meanwhile.
func TestGiveUp(t *testing.T) {
	r := newRig(t)
	r.sealed(9)
	s := r.open(Options{})
	all := r.text("SELECT count(*)::text FROM scrip.coupon")
	r.exec("INSERT INTO scrip_1.removal (campaign, through, redeemed, expired) VALUES ('c0', 50, 0, 0)")
	reader, err := r.pool.Begin(t.Context())
	streamtest.Must(t, err)
	_, err = reader.Exec(t.Context(), "SELECT count(*) FROM scrip.coupon")
	streamtest.Must(t, err)
	streamtest.Must(t, s.mergeSome(t.Context()))
	streamtest.Must(t, pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error {
		if err := GiveUp(t.Context(), tx, "scrip_1"); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "DELETE FROM scrip_1.removal")
		return err
	}))
	streamtest.Must(t, reader.Rollback(t.Context()))
	streamtest.Must(t, s.swap(t.Context()))
	streamtest.Equal(t, "coupons", r.text("SELECT count(*)::text FROM scrip.coupon"), all)
	streamtest.Must(t, s.mergeSome(t.Context()))
	streamtest.Equal(t, "coupons after the next merge", r.text("SELECT count(*)::text FROM scrip.coupon"), all)
}

// While there is no sealed segment, coupons that are missing go to segment 0. What is being copied is left to another try.
func TestReplaceWithoutSealedSegments(t *testing.T) {
	r := newRig(t)
	s := r.open(Options{Rows: 1000})
	r.claim(s, 0, 90)
	from := r.fold()
	_, err := r.pool.Exec(t.Context(), "DELETE FROM scrip_1.coupon_claim WHERE campaign = 'c0' AND n = 7; DELETE FROM "+from+".coupon_claim WHERE n = 90")
	streamtest.Must(t, err)
	merge, err := r.pool.Begin(t.Context())
	streamtest.Must(t, err)
	_, err = merge.Exec(t.Context(), s.in(sourcesSQL), []int32{-1})
	streamtest.Must(t, err)
	if _, err := r.replace(from, 7, 90); !errors.Is(err, ErrBusy) {
		t.Errorf("beside a merge: %v", err)
	}
	streamtest.Must(t, merge.Rollback(t.Context()))
	_, err = r.replace(from, 7, 90)
	streamtest.Must(t, err)
	streamtest.Equal(t, "where they are", r.text("SELECT string_agg(n || ' in ' || segment, ', ') FROM scrip_1.coupon_claim WHERE campaign = 'c0' AND n IN (7, 90)"), "7 in 0")
}
