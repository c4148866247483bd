-- Redemptions are found by order.

-- +goose Up

-- A hash index, as those of coupon_row: half the cost of a btree on random text, and no limit on its length. Its collation
-- differs from the column's, so only queries that name it use the index: for a rollback, which has the coupon's key as well,
-- it would read all redemptions of that order, and a producer may use one order for all.
CREATE INDEX redemption_order ON scrip.redemption USING hash (order_id COLLATE "POSIX");

-- +goose Down
DROP INDEX scrip.redemption_order;
