-- $1 = campaign   $2 = customer
WITH next AS (
  UPDATE counter SET given = given + 1
  WHERE campaign = $1 AND given < codes AND NOT EXISTS (SELECT 1 FROM claim WHERE campaign = $1 AND customer_id = $2)
  RETURNING given)
INSERT INTO claim (campaign, customer_id, n) SELECT $1, $2, given FROM next RETURNING n
