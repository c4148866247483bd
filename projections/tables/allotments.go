package tables

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

// allotment is a new row of allotment: a block of printed coupons, whatever its size. A coupon of it gets a row of its own with
// the first event that changes it; until then it is made from its block, and only then is its block looked up.
type allotment struct {
	batch         string
	from, through uint32
	at, expires   wire.Instant
	position      int64
}

func (f *fold) allotted(c *campaign, l *Line) error {
	e := &l.Event
	if e.FromN == 0 || e.ThroughN < e.FromN {
		return fmt.Errorf("coupons %d to %d are no block", e.FromN, e.ThroughN)
	}
	c.highest = max(c.highest, int64(e.ThroughN))
	c.allotments = append(c.allotments, allotment{e.Batch, e.FromN, e.ThroughN, e.At, e.ExpiresAt, l.position()})
	size := int64(e.ThroughN-e.FromN) + 1
	c.claimed += size
	c.counted = true
	k := &coupon{ownExpiry: e.ExpiresAt}
	c.add(k, size)
	f.count(c, k, e.At, stat{claimed: size})
	return nil
}

// printed returns coupon n of an allotment of this batch, nil if there is none.
func (c *campaign) printed(n uint32) *coupon {
	for _, a := range c.allotments {
		if a.from <= n && n <= a.through {
			k := &coupon{n: n, claimedAt: a.at, position: a.position, ownExpiry: a.expires, claimedExpiry: a.expires, noRow: true}
			c.keep(k)
			return k
		}
	}
	return nil
}

// $1, $2 = campaigns and numbers of coupons without a row, pairwise
const loadPrintedSQL = `
SELECT k.campaign, k.n, a.allotted_at, a.place, a.expires_at
FROM unnest($1::text[], $2::bigint[]) k (campaign, n) CROSS JOIN LATERAL (
    SELECT * FROM scrip.allotment a WHERE a.campaign = k.campaign AND a.from_n <= k.n ORDER BY a.from_n DESC LIMIT 1) a
WHERE a.through_n >= k.n`

func (f *fold) scanPrinted(rows pgx.Rows) error {
	k := &coupon{noRow: true}
	var name string
	var n int64
	var at, own pgtype.Timestamptz
	if err := rows.Scan(&name, &n, &at, &k.position, &own); err != nil {
		return err
	}
	k.n, k.claimedAt, k.ownExpiry = uint32(n), instantOf(at), instantOf(own)
	k.claimedExpiry = k.ownExpiry
	f.campaigns[name].keep(k)
	return nil
}

func (f *fold) copyAllotments(ctx context.Context, tx pgx.Tx) error {
	var rows pgcopy.Rows
	for _, c := range f.sorted {
		for _, a := range c.allotments {
			rows.Add(a.from, a.through, a.at, a.expires, a.position, c.name, a.batch)
		}
	}
	return rows.Send(ctx, tx, In(f.schema, "scrip.allotment"), "from_n, through_n, allotted_at, expires_at, place, campaign, batch")
}
