-- Redemptions are found by order.

-- +goose Up

-- A hash index, as those of coupon_row: half the cost of a btree on random text, and no limit on its length.
CREATE INDEX redemption_order ON scrip.redemption USING hash (order_id);

-- +goose Down
DROP INDEX scrip.redemption_order;
