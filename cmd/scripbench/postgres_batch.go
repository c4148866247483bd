package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// pgBatchCaller claims for many customers in one transaction: one statement per campaign, all sent in one batch.
type pgBatchCaller struct{ pgCaller }

// $1 = campaign   $2 = customers   $3 = coupons below this number are most likely claimed
// A row for each customer who got a coupon. Customers who have one already are left out before coupons are searched.
const pgClaimManySQL = `
WITH want AS (
  SELECT customer_id, row_number() OVER () AS k FROM unnest($2::text[]) AS w(customer_id)
  WHERE NOT EXISTS (SELECT 1 FROM coupon h WHERE h.campaign = $1 AND h.customer_id = w.customer_id)),
free AS MATERIALIZED (
  SELECT n FROM coupon WHERE campaign = $1 AND customer_id IS NULL AND n >= $3 ORDER BY n LIMIT cardinality($2::text[]) FOR UPDATE SKIP LOCKED),
pair AS MATERIALIZED (
  SELECT f.n, want.customer_id FROM (SELECT n, row_number() OVER () AS k FROM free) f JOIN want USING (k))
UPDATE coupon SET customer_id = pair.customer_id, claimed_at = now() FROM pair
WHERE coupon.campaign = $1 AND coupon.n = pair.n
RETURNING coupon.customer_id, coupon.n, coupon.code`

// $1 = codes   $2 = their orders
const pgRedeemManySQL = `
UPDATE coupon SET order_id = o.order_id FROM unnest($1::text[], $2::text[]) AS o(code, order_id)
WHERE coupon.code = o.code AND coalesce(coupon.customer_id, '') <> '' AND coupon.order_id IS NULL
RETURNING coupon.code`

func (c *pgBatchCaller) send(ctx context.Context, from, to int, answers []answer) error {
	operation := make(map[string]int, to-from)
	byCampaign := map[int][]string{}
	for i := from; i < to; i++ {
		customer, k := c.p.customer(i), c.p.index(i)
		operation[customer] = i
		byCampaign[k] = append(byCampaign[k], customer)
	}
	again, err := c.claim(ctx, byCampaign, operation, answers)
	if err == nil && len(again) > 0 {
		again, err = c.claim(ctx, again, operation, answers)
	}
	if err != nil {
		return err
	}
	for _, customers := range again {
		for _, customer := range customers {
			answers[operation[customer]] = answer{verdict: refused}
		}
	}
	if c.p.redeem {
		return c.redeem(ctx, from, to, answers)
	}
	return nil
}

// claim runs one transaction. It returns the customers who got nothing in campaigns where it did not search from the
// beginning; in the others they are refused.
func (c *pgBatchCaller) claim(ctx context.Context, byCampaign map[int][]string, operation map[string]int, answers []answer) (map[int][]string, error) {
	batch := &pgx.Batch{}
	again := map[int][]string{}
	for k, customers := range byCampaign {
		begin := c.seen[k]
		batch.Queue(pgClaimManySQL, k, customers, begin).Query(func(rows pgx.Rows) error {
			got := map[string]bool{}
			var customer, text string
			var n int
			_, err := pgx.ForEachRow(rows, []any{&customer, &n, &text}, func() error {
				got[customer] = true
				answers[operation[customer]] = answer{verdict: won, code: text}
				c.seen[k] = max(c.seen[k], n)
				return nil
			})
			if err != nil || len(got) == len(customers) {
				return err
			}
			c.seen[k] = 0
			for _, customer := range customers {
				switch {
				case got[customer]:
				case begin > 0:
					again[k] = append(again[k], customer)
				default:
					answers[operation[customer]] = answer{verdict: refused}
				}
			}
			return nil
		})
	}
	return again, c.db.SendBatch(ctx, batch).Close()
}

func (c *pgBatchCaller) redeem(ctx context.Context, from, to int, answers []answer) error {
	var codes, orders []string
	for i := from; i < to; i++ {
		if answers[i].verdict == won {
			codes, orders = append(codes, answers[i].code), append(orders, c.p.order(i))
		}
	}
	tag, err := c.db.Exec(ctx, pgRedeemManySQL, codes, orders)
	if err == nil && int(tag.RowsAffected()) != len(codes) {
		err = fmt.Errorf("%d of %d codes were redeemed", tag.RowsAffected(), len(codes))
	}
	return err
}
