-- Customers who collect coupons and never redeem one.
--
--   SELECT * FROM never_redeem.collector ORDER BY claimed DESC LIMIT 100;
--
-- A redemption names its coupon, not always its customer: the claim does, so holders are kept.
--
-- scrip: types coupon.claimed coupon.redeemed coupon.rolled_back
-- scrip: create
CREATE TABLE holder (
	campaign    text   NOT NULL,
	n           bigint NOT NULL,
	customer_id text   NOT NULL,
	PRIMARY KEY (campaign, n)
);

CREATE TABLE customer (
	customer_id text        PRIMARY KEY,
	claimed     bigint      NOT NULL,
	redeemed    bigint      NOT NULL, -- redemptions that were not taken back
	last_claim  timestamptz
);

CREATE VIEW collector AS
SELECT customer_id, claimed, last_claim FROM customer WHERE redeemed = 0;

-- scrip: fold
INSERT INTO holder SELECT campaign, n, customer_id FROM events WHERE type = 'coupon.claimed';

-- After the claims of the same batch, so that all coupons of the batch have a holder.
INSERT INTO customer
SELECT h.customer_id,
       count(*) FILTER (WHERE e.type = 'coupon.claimed'),
       count(*) FILTER (WHERE e.type = 'coupon.redeemed') - count(*) FILTER (WHERE e.type = 'coupon.rolled_back'),
       max(e.at) FILTER (WHERE e.type = 'coupon.claimed')
FROM events e JOIN holder h USING (campaign, n)
GROUP BY 1
ON CONFLICT (customer_id) DO UPDATE
SET claimed    = customer.claimed + excluded.claimed,
    redeemed   = customer.redeemed + excluded.redeemed,
    last_claim = greatest(customer.last_claim, excluded.last_claim);
