-- $1 = campaign   $2 = customers   $3 = coupons below this number are most likely claimed
-- A row for each customer who got a coupon. Customers who have one already are left out before coupons are searched.
WITH want AS (
  SELECT customer_id, row_number() OVER () AS k FROM unnest($2::text[]) AS w(customer_id)
  WHERE NOT EXISTS (SELECT 1 FROM coupon h WHERE h.campaign = $1 AND h.customer_id = w.customer_id)),
free AS MATERIALIZED (
  SELECT n FROM coupon WHERE campaign = $1 AND customer_id IS NULL AND n >= $3 ORDER BY n LIMIT cardinality($2::text[]) FOR UPDATE SKIP LOCKED),
pair AS MATERIALIZED (
  SELECT f.n, want.customer_id FROM (SELECT n, row_number() OVER () AS k FROM free) f JOIN want USING (k))
UPDATE coupon SET customer_id = pair.customer_id, claimed_at = now() FROM pair
WHERE coupon.campaign = $1 AND coupon.n = pair.n
RETURNING coupon.customer_id, coupon.n, coupon.code
