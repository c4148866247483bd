-- $1 = campaign   $2 = now   $3, $4 = numbers of the coupons to mark are above the first and not above the second
-- $5 = how many at most
-- The job remembers the last number; all up to it are marked.
WITH batch AS (
  SELECT campaign, n FROM expirable WHERE campaign = $1 AND expires_at <= $2 AND n > $3 AND n <= $4 AND status = 'claimed' ORDER BY n LIMIT $5),
marked AS (
  UPDATE expirable e SET status = 'expired' FROM batch b WHERE e.campaign = b.campaign AND e.n = b.n RETURNING e.n)
SELECT count(*), coalesce(max(n), 0) FROM marked
