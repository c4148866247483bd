-- $1 = campaign   $2 = now
UPDATE expirable SET status = 'expired' WHERE campaign = $1 AND expires_at <= $2 AND status = 'claimed'
