-- Drops each object in schema {{schema}}: tables first, because sequences and types that belong to a table follow it. Objects of
-- an extension are left out.
DO $empty$
DECLARE
  schema_oid oid := to_regnamespace($name${{schema}}$name$);
  thing record;
BEGIN
  FOR thing IN
    SELECT replace(replace(upper(i.type), 'COMPOSITE TYPE', 'TYPE'), 'STATISTICS OBJECT', 'STATISTICS') AS kind, i.identity, d.classid, d.objid
    FROM pg_depend d, pg_identify_object(d.classid, d.objid, 0) i
    WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = schema_oid AND d.deptype = 'n'
      AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.classid = d.classid AND e.objid = d.objid AND e.deptype = 'e')
      AND i.type IN ('table', 'view', 'materialized view', 'foreign table', 'sequence', 'composite type', 'type', 'domain', 'function', 'procedure',
        'aggregate', 'operator', 'operator class', 'operator family', 'collation', 'conversion', 'statistics object', 'text search configuration', 'text search dictionary')
    ORDER BY i.type <> 'table', d.objid
  LOOP
    CONTINUE WHEN EXISTS (SELECT FROM pg_depend o WHERE o.classid = thing.classid AND o.objid = thing.objid AND (o.deptype = 'i' AND thing.kind <> 'TABLE' OR o.deptype = 'a' AND thing.kind = 'SEQUENCE'));
    EXECUTE format('DROP %s IF EXISTS %s CASCADE', thing.kind, thing.identity);
  END LOOP;
END
$empty$
