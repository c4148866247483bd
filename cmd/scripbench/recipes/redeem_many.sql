-- $1 = codes   $2 = their orders
UPDATE coupon SET order_id = o.order_id FROM unnest($1::text[], $2::text[]) AS o(code, order_id)
WHERE coupon.code = o.code AND coalesce(coupon.customer_id, '') <> '' AND coupon.order_id IS NULL
RETURNING coupon.code
