-- The body of a function with the parameter who: an analyst {"name","id","verifier","codes","customers"}; one that is revoked,
-- {"name","id"} with the id of the key of that name in force, or null, and once it is closed and has no session, also "drop":true; or NULL, for the roles whose members analysts are:
-- that of all of them, one for each right, and one for both. It runs with the rights of the function's owner, or of the caller.
-- Repeated, it changes nothing. Of each statement that may wait there is one a call, so that no analyst holds up another; the
-- caller bounds how long locks are waited for.
--
-- The role has the key's name, and its comment the id of the first key of the rotations, and a hash of the verifier: a rotated key
-- keeps what was granted to the role, and a new key of a name that was revoked gets a new role.
DECLARE
  readers name := left(current_database(), 40) || '_analyst';
  groups name[] := ARRAY[readers, readers || '_codes', readers || '_customers', readers || '_clear'];
  has boolean[] := ARRAY[true, (who ->> 'codes')::boolean, (who ->> 'customers')::boolean, (who ->> 'codes')::boolean AND (who ->> 'customers')::boolean];
  member name := 'analyst_' || (who ->> 'name');
  this oid := to_regrole(quote_ident(member)); -- NULL: it is not there
  gone name := 'revoked_' || this;
  one text;
  was record;
BEGIN
  IF who IS NULL THEN
    FOREACH one IN ARRAY groups LOOP
      IF to_regrole(quote_ident(one)) IS NULL THEN
        EXECUTE format('CREATE ROLE %I', one);
      END IF;
    END LOOP;
    FOR was IN SELECT g.rolname AS role, d.datname AS base FROM pg_db_role_setting s JOIN pg_roles g ON g.oid = s.setrole
      LEFT JOIN pg_database d ON d.oid = s.setdatabase WHERE g.rolname = ANY (groups) LOOP
      EXECUTE format('ALTER ROLE %I', was.role) || coalesce(' IN DATABASE ' || quote_ident(was.base), '') || ' RESET ALL';
    END LOOP;
{{readers}}
    EXECUTE format('GRANT USAGE ON SCHEMA scrip_meta TO %I', readers);
    EXECUTE format('GRANT SELECT ON {{relations}} TO %I', readers);
    RETURN;
  END IF;
  IF who ->> 'name' IS NULL OR octet_length('analyst_' || (who ->> 'name')) > 63 OR who ->> 'id' !~ '^[0-9a-z]{8}$'
      OR who ->> 'verifier' !~ '^SCRAM-SHA-256\$' THEN
    RAISE EXCEPTION 'not an analyst: %', who ->> 'name';
  END IF;
  IF to_regrole(quote_ident(member)) IS NOT NULL AND NOT pg_has_role(to_regrole(quote_ident(member)), to_regrole(quote_ident(readers)), 'MEMBER') THEN
    RAISE EXCEPTION 'role % is there, and is not an analyst of this database; give the key another name', member;
  END IF;
  IF who ->> 'verifier' IS NULL AND (this IS NULL OR starts_with(shobj_description(this, 'pg_authid'), 'key ' || (who ->> 'id') || ' ')) THEN
    RETURN; -- another server was first, and may have made the role of the key in force
  ELSIF who ->> 'drop' = 'true' THEN
    IF (SELECT rolcanlogin FROM pg_roles WHERE oid = this) THEN
      RETURN; -- it is not the one that was closed
    END IF;
    -- From here on no other server changes it, or the role that has its name by now.
    EXECUTE format('ALTER ROLE %I RENAME TO %I', member, gone);
    IF NOT EXISTS (SELECT FROM pg_roles WHERE oid = this AND rolname = gone AND NOT rolcanlogin) THEN
      RAISE EXCEPTION 'another server has set role % meanwhile', member USING ERRCODE = 'serialization_failure';
    END IF;
    -- Of what it owns, views and functions run with its rights. No other role may become their owner, so the role stays for them,
    -- without rights.
    IF NOT EXISTS (SELECT FROM pg_shdepend d WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid = this
        AND d.deptype = 'o' AND d.classid <> 'pg_default_acl'::regclass) THEN
      EXECUTE format('DROP OWNED BY %I', gone); -- its rights
      BEGIN
        EXECUTE format('DROP ROLE %I', gone);
        RETURN;
      EXCEPTION WHEN dependent_objects_still_exist THEN
        NULL; -- it has rights in another database, or such as others gave it
      END;
    END IF;
    FOR was IN SELECT DISTINCT CASE WHEN i.type ~ 'table$|view|sequence' THEN 'TABLE' WHEN i.type ~ 'function|procedure|aggregate' THEN 'ROUTINE'
          WHEN i.type ~ 'type|domain' THEN 'TYPE' WHEN i.type = 'server' THEN 'FOREIGN SERVER'
          ELSE replace(upper(i.type), '-', ' ') END AS kind, i.identity
        FROM pg_shdepend d JOIN pg_database b ON b.datname = current_database(), pg_identify_object(d.classid, d.objid, 0) i
        WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid = this AND d.deptype = 'a'
          AND d.dbid IN (0, b.oid) AND d.classid <> 'pg_default_acl'::regclass LOOP
      EXECUTE format('REVOKE ALL ON %s %s FROM %I', was.kind, was.identity, gone);
    END LOOP;
    FOR was IN SELECT g.rolname AS role, b.rolname AS grantor FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
        LEFT JOIN pg_roles b ON b.oid = m.grantor WHERE m.member = this LOOP
      EXECUTE format('REVOKE %I FROM %I', was.role, gone) || coalesce(' GRANTED BY ' || quote_ident(was.grantor), '');
    END LOOP;
    RETURN;
  ELSIF who ->> 'verifier' IS NULL THEN
    EXECUTE format('ALTER ROLE %I NOLOGIN', member);
    IF to_regrole(quote_ident(member)) IS DISTINCT FROM this THEN
      RAISE EXCEPTION 'another server has made role % meanwhile', member USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN;
  END IF;
  IF NOT EXISTS ({{changed}}) THEN
    RETURN; -- another server was first
  END IF;
  IF to_regrole(quote_ident(member)) IS NULL THEN
    EXECUTE format('CREATE ROLE %I IN ROLE %I', member, readers);
  ELSIF starts_with(shobj_description(to_regrole(quote_ident(member)), 'pg_authid'), 'key ' || (who ->> 'id') || ' ') IS NOT TRUE THEN
    RETURN; -- it is a revoked key's, and will be dropped
  END IF;
  IF NOT pg_has_role(to_regrole(quote_ident(member)), 'USAGE') THEN -- to end its sessions
    EXECUTE format('GRANT %I TO %I', member, session_user);
  END IF;
  EXECUTE format('ALTER ROLE %I LOGIN CONNECTION LIMIT {{connections}} PASSWORD %L', member, who ->> 'verifier');
  EXECUTE format('COMMENT ON ROLE %I IS %L', member, {{mark}});
  FOR one IN SELECT d.datname FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase WHERE s.setrole = to_regrole(quote_ident(member)) LOOP
    EXECUTE format('ALTER ROLE %I IN DATABASE %I RESET ALL', member, one);
  END LOOP;
  EXECUTE format('ALTER ROLE %I RESET ALL', member);
  FOREACH one IN ARRAY '{{settings}}'::text[] LOOP
    EXECUTE format('ALTER ROLE %I SET %I = %L', member, split_part(one, '=', 1), split_part(one, '=', 2));
  END LOOP;
  FOR i IN 2..4 LOOP
    IF has[i] THEN
      EXECUTE format('GRANT %I TO %I', groups[i], member);
    ELSIF pg_has_role(to_regrole(quote_ident(member)), to_regrole(quote_ident(groups[i])), 'MEMBER') THEN
      EXECUTE format('REVOKE %I FROM %I', groups[i], member);
    END IF;
  END LOOP;
  IF EXISTS (SELECT FROM pg_default_acl d WHERE d.defaclrole = to_regrole(quote_ident(member))) THEN
    EXECUTE format('DROP OWNED BY %I', member);
  END IF;
END
