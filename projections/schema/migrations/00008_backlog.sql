-- What is due and not done, and what will be: for whoever has a database client and no Prometheus.
--
-- Both say what the tables know. While the projector is behind, something that was done shows as due. They are functions
-- and not views, so that nothing depends on the tables: an operator may drop any one of them.

-- +goose Up

-- due is coupons or reminders; oldest_due_seconds is the number to alert on. Reminders are looked for among those that
-- fell due in the last day: what fires or is dropped stays in the table, and the grace is minutes.
-- +goose StatementBegin
CREATE FUNCTION scrip.backlog() RETURNS TABLE (lane bigint, priority text, kind text, due bigint, oldest_due_at timestamptz,
    oldest_due_seconds double precision)
LANGUAGE sql STABLE
AS $$
SELECT d.lane, d.priority, d.kind, sum(d.due)::bigint AS due, min(d.due_at) AS oldest_due_at,
       extract(epoch FROM now() - min(d.due_at))::double precision AS oldest_due_seconds
FROM (
    SELECT c.lane, coalesce(c.priority, 'normal') AS priority, 'expiry' AS kind, t.live AS due, t.due_at
    FROM scrip.expiry_task t JOIN scrip.campaign c ON c.campaign = t.campaign
    WHERE t.state = 'pending' AND t.live > 0 AND t.due_at <= now()
    UNION ALL
    SELECT c.lane, coalesce(c.priority, 'normal'), 'reminder', r.due, r.due_at
    FROM scrip.campaign c CROSS JOIN (VALUES ('opens'), ('expires')) k (kind) CROSS JOIN LATERAL (
        SELECT count(*) AS due, min(x.due_at) AS due_at FROM scrip.reminder x
        WHERE x.campaign = c.campaign AND x.kind = k.kind AND x.due_at > now() - interval '1 day' AND x.due_at <= now()
          AND x.state = 'pending') r
    WHERE r.due > 0
) d
GROUP BY d.lane, d.priority, d.kind
$$;
-- +goose StatementEnd

-- What falls due in each second of the next hour; seconds in which nothing does are left out.
-- +goose StatementBegin
CREATE FUNCTION scrip.due_next_hour() RETURNS TABLE (second timestamptz, priority text, kind text, due bigint)
LANGUAGE sql STABLE
AS $$
SELECT d.due_at AS second, d.priority, d.kind, sum(d.due)::bigint AS due
FROM (
    SELECT date_trunc('second', t.due_at) AS due_at, coalesce(c.priority, 'normal') AS priority, 'expiry' AS kind, t.live AS due
    FROM scrip.expiry_task t JOIN scrip.campaign c ON c.campaign = t.campaign
    WHERE t.state = 'pending' AND t.live > 0 AND t.due_at > now() AND t.due_at <= now() + interval '1 hour'
    UNION ALL
    SELECT r.due_at, coalesce(c.priority, 'normal'), 'reminder', r.due
    FROM scrip.campaign c CROSS JOIN (VALUES ('opens'), ('expires')) k (kind) CROSS JOIN LATERAL (
        SELECT date_trunc('second', x.due_at) AS due_at, count(*) AS due FROM scrip.reminder x
        WHERE x.campaign = c.campaign AND x.kind = k.kind AND x.due_at > now() AND x.due_at <= now() + interval '1 hour'
          AND x.state = 'pending'
        GROUP BY 1) r
) d
GROUP BY d.due_at, d.priority, d.kind
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION scrip.due_next_hour(), scrip.backlog();
