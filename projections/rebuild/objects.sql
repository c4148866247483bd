-- What is in a schema, or depends on something in it, directly or not: see object in dependents.go. Rules, row types and the like
-- depend on the relation that they are part of; the search continues from that relation.
--
-- $1 = schema
WITH RECURSIVE o (classid, objid, objsubid) AS (
    SELECT 'pg_namespace'::regclass::oid, oid, 0 FROM pg_namespace WHERE nspname = $1
    UNION
    SELECT x.classid, x.objid, x.objsubid FROM o CROSS JOIN LATERAL (
        SELECT d.classid, d.objid, d.objsubid FROM pg_depend d
        WHERE d.refclassid = o.classid AND d.refobjid = o.objid AND (o.objsubid = 0 OR d.refobjsubid IN (0, o.objsubid)) AND d.deptype <> 'e'
        UNION ALL
        SELECT d.refclassid, d.refobjid, d.refobjsubid FROM pg_depend d
        WHERE d.classid = o.classid AND d.objid = o.objid AND d.deptype = 'i') x
)
SELECT (SELECT relname::text FROM pg_class WHERE oid = o.classid), o.objid, i.type, i.identity, coalesce(c.relkind::text, p.prokind::text, ''),
       coalesce(x.indrelid, k.conrelid, t.tgrelid, w.ev_class, a.adrelid, pol.polrelid, pub.prrelid, st.stxrelid, nullif(ty.typrelid, 0),
                CASE WHEN o.objsubid > 0 THEN o.objid END, 0),
       coalesce(t.tgisinternal, w.rulename = '_RETURN', ty.typrelid <> 0 AND tc.relkind <> 'c' OR ty.typelem <> 0 AND ty.typlen = -1, false)
           OR c.relkind = 't' IS TRUE OR i.schema = 'pg_toast' IS TRUE
           OR x.indexrelid IS NOT NULL AND EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = o.classid AND d.objid = o.objid AND d.deptype = 'i'),
       pg_has_role(coalesce(c.relowner, p.proowner, acl.defaclrole, current_user::regrole::oid), 'USAGE'),
       ARRAY(SELECT n.relname || ':' || d.refobjid FROM pg_depend d JOIN pg_class n ON n.oid = d.refclassid
             WHERE d.classid = o.classid AND d.objid = o.objid AND d.objsubid = o.objsubid)
FROM o CROSS JOIN LATERAL pg_identify_object(o.classid, o.objid, o.objsubid) i
LEFT JOIN pg_class c ON o.classid = 'pg_class'::regclass AND c.oid = o.objid
LEFT JOIN pg_proc p ON o.classid = 'pg_proc'::regclass AND p.oid = o.objid
LEFT JOIN pg_index x ON o.classid = 'pg_class'::regclass AND x.indexrelid = o.objid
LEFT JOIN pg_constraint k ON o.classid = 'pg_constraint'::regclass AND k.oid = o.objid
LEFT JOIN pg_trigger t ON o.classid = 'pg_trigger'::regclass AND t.oid = o.objid
LEFT JOIN pg_rewrite w ON o.classid = 'pg_rewrite'::regclass AND w.oid = o.objid
LEFT JOIN pg_attrdef a ON o.classid = 'pg_attrdef'::regclass AND a.oid = o.objid
LEFT JOIN pg_policy pol ON o.classid = 'pg_policy'::regclass AND pol.oid = o.objid
LEFT JOIN pg_publication_rel pub ON o.classid = 'pg_publication_rel'::regclass AND pub.oid = o.objid
LEFT JOIN pg_statistic_ext st ON o.classid = 'pg_statistic_ext'::regclass AND st.oid = o.objid
LEFT JOIN pg_default_acl acl ON o.classid = 'pg_default_acl'::regclass AND acl.oid = o.objid
LEFT JOIN pg_type ty ON o.classid = 'pg_type'::regclass AND ty.oid = o.objid
LEFT JOIN pg_class tc ON tc.oid = ty.typrelid
WHERE i.identity IS NOT NULL AND o.classid <> 'pg_namespace'::regclass
UNION ALL
SELECT 'pg_attribute', c.oid, 'column', format('%I.%I.%I', $1::text, c.relname, a.attname), '', c.oid, false, true, '{}'
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = $1 AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY 3, 4
