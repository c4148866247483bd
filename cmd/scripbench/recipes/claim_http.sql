-- $1 = campaign   $2 = customer   $3 = coupons up to this number are most likely claimed   $4 = Idempotency-Key
-- No row: all are claimed or just being claimed, or the customer or the key has one.
UPDATE coupon SET customer_id = $2, claim_id = $4, claimed_at = now()
WHERE ctid = (SELECT ctid FROM coupon WHERE campaign = $1 AND customer_id IS NULL AND n >= $3 ORDER BY n LIMIT 1 FOR UPDATE SKIP LOCKED)
  AND NOT EXISTS (SELECT 1 FROM coupon WHERE campaign = $1 AND customer_id = $2)
  AND NOT EXISTS (SELECT 1 FROM coupon WHERE campaign = $1 AND claim_id = $4)
RETURNING n, code
