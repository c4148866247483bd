-- How many coupons of each campaign were claimed and redeemed, hour by hour (UTC).
--
--   SELECT * FROM claims_by_hour.hour WHERE campaign = 'summer' ORDER BY hour;
--
-- scrip: types coupon.claimed coupon.redeemed coupon.rolled_back
-- scrip: create
CREATE TABLE hour (
	campaign    text        NOT NULL,
	hour        timestamptz NOT NULL,
	claims      bigint      NOT NULL,
	redemptions bigint      NOT NULL,
	rollbacks   bigint      NOT NULL, -- redemptions taken back in this hour; they stay counted where they were made
	PRIMARY KEY (campaign, hour)
);

-- scrip: fold
INSERT INTO hour
SELECT campaign, date_trunc('hour', at, 'UTC'),
       count(*) FILTER (WHERE type = 'coupon.claimed'),
       count(*) FILTER (WHERE type = 'coupon.redeemed'),
       count(*) FILTER (WHERE type = 'coupon.rolled_back')
FROM events
GROUP BY 1, 2
ON CONFLICT (campaign, hour) DO UPDATE
SET claims      = hour.claims + excluded.claims,
    redemptions = hour.redemptions + excluded.redemptions,
    rollbacks   = hour.rollbacks + excluded.rollbacks;
