-- The functions that PUBLIC has and is not to have: those whose effect lasts (large objects, locks, notifications,
-- messages in the WAL), and two that PostgreSQL calls stable and that write to the WAL, because they take a transaction
-- id.
SELECT p.oid, p.proname FROM pg_proc p
WHERE p.pronamespace = 'pg_catalog'::regnamespace AND (p.provolatile = 'v' OR p.proname IN ('txid_current', 'pg_current_xact_id'))
  AND p.proname <> ALL ('{{{kept}}}'::name[])
  AND p.prorettype <> ALL ('{trigger,event_trigger,language_handler,fdw_handler,index_am_handler,table_am_handler,tsm_handler}'::regtype[])
  AND NOT 'internal'::regtype = ANY (p.proargtypes) -- these cannot be called from SQL
  AND (p.proacl IS NULL OR EXISTS (SELECT FROM aclexplode(p.proacl) a WHERE a.grantee = 0 AND a.privilege_type = 'EXECUTE'))
