-- Takes from PUBLIC, in the current database, what is more than reading, and gives it to the owner of the read tables.
-- Repeated, it changes nothing. For a superuser.
DO $rights$
DECLARE
  owner name := '{{owner}}';
  one oid;
BEGIN
  FOR one IN SELECT o.oid FROM ({{open}}) o LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', one::regprocedure, owner);
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', one::regprocedure);
  END LOOP;
  EXECUTE format('GRANT CREATE, TEMPORARY ON DATABASE %I TO %I', current_database(), owner);
  EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
  REVOKE CREATE ON SCHEMA public FROM PUBLIC; -- as PostgreSQL 15 does
  EXECUTE format('GRANT CREATE ON SCHEMA public TO %I', owner);
  IF to_regrole('pg_use_reserved_connections') IS NOT NULL THEN -- from PostgreSQL 16
    EXECUTE format('GRANT pg_use_reserved_connections TO %I', owner);
  END IF;
END $rights$
