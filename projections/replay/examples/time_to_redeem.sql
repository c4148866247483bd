-- How long customers wait between claiming a coupon and first redeeming it.
--
--   SELECT * FROM time_to_redeem.percentiles;
--   SELECT * FROM time_to_redeem.histogram WHERE campaign = 'summer';
--   SELECT percentile_cont(0.99) WITHIN GROUP (ORDER BY redeemed_at - claimed_at) FROM time_to_redeem.coupon;
--
-- A redemption that was rolled back counts: the customer came.
--
-- scrip: types coupon.claimed coupon.redeemed
-- scrip: create
CREATE TABLE coupon (
	campaign    text        NOT NULL,
	n           bigint      NOT NULL,
	claimed_at  timestamptz NOT NULL,
	redeemed_at timestamptz, -- first time; NULL until then
	PRIMARY KEY (campaign, n)
);

CREATE VIEW percentiles AS
SELECT campaign, count(*) AS claims, count(redeemed_at) AS redeemed,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY redeemed_at - claimed_at) AS median,
       percentile_cont(0.9) WITHIN GROUP (ORDER BY redeemed_at - claimed_at) AS p90,
       max(redeemed_at - claimed_at) AS longest
FROM coupon
GROUP BY campaign;

-- Each row: redeemed after at least "from" and less than "below".
CREATE VIEW histogram AS
SELECT c.campaign, b.from, b.below, count(*) AS redemptions
FROM coupon c JOIN (VALUES
	(interval '0', interval '1 minute'), ('1 minute', '10 minutes'), ('10 minutes', '1 hour'), ('1 hour', '6 hours'),
	('6 hours', '24 hours'), ('24 hours', '168 hours'), ('168 hours', '720 hours'), ('720 hours', '1000000 hours')
) AS b ("from", below) ON c.redeemed_at - c.claimed_at >= b.from AND c.redeemed_at - c.claimed_at < b.below
GROUP BY 1, 2, 3
ORDER BY 1, 2;

-- scrip: fold
INSERT INTO coupon (campaign, n, claimed_at)
SELECT campaign, n, at FROM events WHERE type = 'coupon.claimed';

-- After the claims of the same batch, so that a coupon redeemed in it is there.
UPDATE coupon c SET redeemed_at = e.at
FROM (SELECT campaign, n, min(at) AS at FROM events WHERE type = 'coupon.redeemed' GROUP BY 1, 2) e
WHERE c.campaign = e.campaign AND c.n = e.n AND c.redeemed_at IS NULL;
