package segments

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// redeem redeems a coupon of campaign c0, outside of any set.
func (r *rig) redeem(n uint32) error {
	var line tables.Line
	line.Read(uint64(9000+n), 1, fmt.Appendf(nil, `{"type":"coupon.redeemed","campaign":"c0","at":"2026-01-01T01:00:00Z","n":%d,"code":"x","order_id":"o","redeemed_count":1}`, n), 0)
	if line.Problem != nil {
		return line.Problem
	}
	return r.apply(0, 0, []tables.Line{line})
}

// What has left is deleted piece by piece, whatever a run leaves when it dies in one or after it. A lane writes beside a piece that is
// not committed.
func TestLeavingGoesOn(t *testing.T) {
	const coupons, piece = 60, 20 // LeavePiece is of all tests of the package, and the same in each
	r := newRig(t)
	s := r.open(Options{Rows: 1000})
	r.claim(s, 0, coupons+40)
	for n := range uint32(coupons) {
		streamtest.Must(t, r.redeem(n+1))
	}
	_, err := r.pool.Exec(t.Context(), fmt.Sprintf(`INSERT INTO scrip_1.removal (campaign, through, redeemed, expired) VALUES ('c0', %d, %[1]d, 0);
		INSERT INTO scrip_1.leaving (campaign, through) VALUES ('c0', %[1]d)`, coupons))
	streamtest.Must(t, err)
	const stored = "SELECT concat_ws(' ', (SELECT count(*) FROM scrip_1.coupon_state), (SELECT count(*) FROM scrip_1.redemption_row))"
	crashed, next := errors.New("crashed"), uint32(coupons)
	for i, c := range []struct {
		committed bool
		stored    string
	}{{false, "61 61"}, {true, "42 62"}, {false, "43 63"}, {true, "24 64"}} {
		s := r.open(Options{Rows: 1000})
		s.crash = func(doing string, tx pgx.Tx, committed bool) error {
			if doing != "deleting what has left" || committed != c.committed {
				return nil
			}
			if next++; r.redeem(next) != nil {
				t.Error("a lane cannot write beside it")
			}
			if committed {
				return crashed
			}
			_, err := r.pool.Exec(t.Context(), "SELECT pg_terminate_backend($1)", tx.Conn().PgConn().PID())
			return err
		}
		if err := s.Run(t.Context()); err == nil {
			t.Error("it did not crash")
		}
		r.until("rows after crash "+fmt.Sprint(i), stored, c.stored)
		streamtest.Equal(t, "redemptions that are shown", r.text("SELECT count(*)::text FROM scrip.redemption"), fmt.Sprint(next-coupons))
	}
	s = r.open(Options{Rows: 1000})
	r.run(s)
	r.until("campaigns that leave", "SELECT count(*)::text FROM scrip_1.leaving", "0")
	streamtest.Equal(t, "rows at the end", r.text(stored), fmt.Sprintf("%d %[1]d", next-coupons))
}
