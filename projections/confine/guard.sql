-- Ends sessions of analysts and projections, and shows of whom, why and how many; and with none the roles that are to be
-- closed ("revoked"), dropped ("closed") or set again ("changed"). It waits for nothing: it reads the catalog, and sends signals.
WITH changed AS ({{changed}}),
subject AS (
  SELECT u.oid, u.rolname::text AS name, u.rolcanlogin, g.rolname LIKE '%\_analyst' AS analyst,
    NOT EXISTS (SELECT FROM jsonb_to_recordset({{wanted}}) AS x (name text, id text)
      WHERE 'analyst_' || x.name = u.rolname AND starts_with(shobj_description(u.oid, 'pg_authid'), 'key ' || x.id || ' ')) AS revoked
  FROM pg_auth_members m JOIN pg_roles u ON u.oid = m.member JOIN pg_roles g ON g.oid = m.roleid
  WHERE g.rolname = left(current_database(), 40) || '_analyst' AND u.rolname ~ '^analyst_' OR g.rolname = left(current_database(), 40) || '_projection' AND u.rolname ~ '^scrip_'
),
judged AS MATERIALIZED (
  SELECT s.name, a.pid, CASE
      WHEN s.analyst AND (NOT s.rolcanlogin OR s.revoked) THEN 'revoked'
      WHEN s.analyst AND s.name IN (SELECT name FROM changed) THEN 'changed'
      WHEN {{full}} THEN 'disk'
      WHEN pg_notification_queue_usage() > {{queue}} AND a.xact_start < now() - interval '{{unread}}' THEN 'notifications'
      WHEN a.state LIKE 'idle in transaction%' AND a.state_change < now() - interval '{{idle}}' THEN 'idle'
      WHEN s.analyst AND a.backend_xid IS NOT NULL THEN 'writes'
      WHEN s.analyst AND a.xact_start < now() - interval '{{long}}' THEN 'long'
      WHEN s.analyst AND row_number() OVER (PARTITION BY s.analyst ORDER BY a.backend_start, a.pid) > {{sessions}} THEN 'many'
    END AS why
  FROM subject s JOIN pg_stat_activity a ON a.usesysid = s.oid WHERE a.backend_type = 'client backend'
)
SELECT name, why, count(*) FILTER (WHERE pg_terminate_backend(pid))::int AS ended FROM judged WHERE why IS NOT NULL GROUP BY name, why
UNION ALL SELECT s.name, CASE WHEN s.rolcanlogin THEN 'revoked' ELSE 'closed' END, 0 FROM subject s
  WHERE s.analyst AND s.revoked AND (s.rolcanlogin OR NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.usesysid = s.oid))
UNION ALL SELECT name, 'changed', 0 FROM changed
