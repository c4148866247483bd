package segments

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// A connection keeps the plans of look-ups. They find each coupon that was committed before, once, whatever segments were begun, sealed,
// merged and dropped since the plan was made; by the key, and by the customer.
func TestKeptPlansHaveEverySegment(t *testing.T) {
	r := newRig(t)
	s := r.open(Options{Rows: 100})
	r.run(s)
	var readers []*pgxpool.Pool
	for range 2 { // of which the second reads seldom
		readers = append(readers, projtest.Pool(t, r.url+"&pool_max_conns=1"))
	}
	read := func(db *pgxpool.Pool, n uint32) {
		t.Helper()
		history := readmodel.NewHistory(db, nil)
		coupon, err := history.Coupon(t.Context(), "c0", n, 0, "")
		streamtest.Must(t, err)
		customer, err := history.Customer(t.Context(), projtest.Claimed("c0", n, 1).CustomerID, 0, "")
		streamtest.Must(t, err)
		one, err := readmodel.NewCoupons(db).One(t.Context(), "c0", n)
		streamtest.Must(t, err)
		if len(coupon.Entries) != 1 || len(customer.Entries) != 1 || one == nil || one.N != n {
			t.Fatalf("coupon %d of %d: %d entries, %d of its customer, %+v", n, r.next[0], len(coupon.Entries), len(customer.Entries), one)
		}
	}
	for round := range 30 {
		r.claim(s, 0, 90) // begins a segment
		for _, back := range []uint32{0, 89, uint32(round) * 45, uint32(round) * 90} {
			read(readers[0], r.next[0]-back)
		}
		if round%8 == 7 {
			read(readers[1], r.next[0])
			read(readers[1], 1)
		}
		s.calm()
	}
	streamtest.Must(t, s.Finish(t.Context()))
	s.calm()
	r.until("merged and dropped", "SELECT (("+allDropped+")::bool AND ("+live+")::int <= 8)::text", "true")
	for n := uint32(1); n <= r.next[0]; n += 89 {
		for _, db := range readers {
			read(db, n)
		}
	}
}
