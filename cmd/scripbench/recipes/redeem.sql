-- $1 = code   $2 = order
-- Not "IS NOT NULL": the statistics are from before the first claim, and PostgreSQL would read all of coupon_holder.
UPDATE coupon SET order_id = $2 WHERE code = $1 AND coalesce(customer_id, '') <> '' AND order_id IS NULL RETURNING n
