-- Lists the grants on the tables in use as GRANT statements for the new ones: on the schema, its relations, their columns and its
-- functions, of which those that PUBLIC may not call are revoked first.
--
-- $1 = from   $2 = to
WITH o (kind, name, columns, acl, owner) AS (
    SELECT 'SCHEMA', format('%I', $2::text), '', s.nspacl, s.nspowner FROM pg_namespace s WHERE s.nspname = $1
    UNION ALL
    SELECT 'TABLE', format('%I.%I', $2::text, c.relname), '', c.relacl, c.relowner
    FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
    WHERE s.nspname = $1 AND to_regclass(format('%I.%I', $2::text, c.relname)) IS NOT NULL
    UNION ALL
    SELECT 'TABLE', format('%I.%I', $2::text, c.relname), format(' (%I)', t.attname), t.attacl, NULL
    FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace JOIN pg_attribute t ON t.attrelid = c.oid AND NOT t.attisdropped
    WHERE s.nspname = $1 AND EXISTS (SELECT 1 FROM pg_attribute x WHERE x.attrelid = to_regclass(format('%I.%I', $2::text, c.relname))
                                       AND x.attname = t.attname AND NOT x.attisdropped)
    UNION ALL
    SELECT 'FUNCTION', format('%I.%I()', $2::text, p.proname), '', p.proacl, p.proowner
    FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace
    WHERE s.nspname = $1 AND p.pronargs = 0 AND to_regprocedure(format('%I.%I()', $2::text, p.proname)) IS NOT NULL
)
SELECT format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', name) FROM o WHERE kind = 'FUNCTION' AND acl IS NOT NULL
UNION ALL
SELECT format('GRANT %s%s ON %s %s TO %s%s', a.privilege_type, columns, kind, name,
              CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
FROM o, aclexplode(acl) a WHERE a.grantee IS DISTINCT FROM o.owner
