-- Those of the wanted analysts whose role is not there, or not as analyst.sql makes it: a role may change its own
-- password and settings. Only a superuser sees passwords. For others the comment has which one scrip gave the role last.
SELECT w.name FROM (SELECT 'analyst_' || x.name AS name, x.id, x.verifier, coalesce(x.codes, false) AS codes, coalesce(x.customers, false) AS customers
  FROM jsonb_to_recordset({{wanted}}) AS x (name text, id text, verifier text, codes boolean, customers boolean)) w
LEFT JOIN {{roles}} u ON u.rolname = w.name
WHERE u.oid IS NULL OR NOT u.rolcanlogin OR u.rolconnlimit <> {{connections}} OR {{forged}}
  OR shobj_description(u.oid, 'pg_authid') IS DISTINCT FROM {{mark}}
  OR (SELECT coalesce(array_agg(c ORDER BY c COLLATE "C"), '{}') FROM pg_db_role_setting s, unnest(s.setconfig) c WHERE s.setrole = u.oid) <> '{{settings}}'::text[]
  OR w.codes <> EXISTS (SELECT FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid WHERE m.member = u.oid AND g.rolname = left(current_database(), 40) || '_analyst_codes')
  OR w.customers <> EXISTS (SELECT FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid WHERE m.member = u.oid AND g.rolname = left(current_database(), 40) || '_analyst_customers')
  OR EXISTS (SELECT FROM pg_default_acl d WHERE d.defaclrole = u.oid)
