-- The body of a function with the parameter who: an analyst {"id","verifier","codes","customers"}; one that is revoked, {"id"}; or
-- NULL, for the roles whose members analysts are: that of all of them, one for each right, and one for both. It runs with the
-- rights of the function's owner, or of the caller. Repeated, it changes nothing. Of each statement that may wait there is
-- one a call, so that no analyst holds up another; the caller bounds how long locks are waited for.
DECLARE
  readers name := left(current_database(), 40) || '_analyst';
  groups name[] := ARRAY[readers, readers || '_codes', readers || '_customers', readers || '_clear'];
  has boolean[] := ARRAY[true, (who ->> 'codes')::boolean, (who ->> 'customers')::boolean, (who ->> 'codes')::boolean AND (who ->> 'customers')::boolean];
  member name := 'analyst_' || (who ->> 'id');
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
    -- The lines of dead letters have codes and customers.
    EXECUTE format('GRANT USAGE ON SCHEMA scrip, scrip_meta TO %I', readers);
    EXECUTE format('GRANT SELECT ON {{relations}} TO %I', readers);
    EXECUTE format('GRANT SELECT (stream, lane, sequence, line, reason, at) ON scrip.dead_letter TO %I', readers);
    EXECUTE format('GRANT SELECT ON scrip.dead_letter TO %I', groups[4]);
    RETURN;
  END IF;
  IF who ->> 'id' !~ '^[0-9a-z]{8}$' OR who ->> 'verifier' !~ '^SCRAM-SHA-256\$' THEN
    RAISE EXCEPTION 'not an analyst: %', who ->> 'id';
  END IF;
  IF to_regrole(quote_ident(member)) IS NOT NULL AND NOT pg_has_role(to_regrole(quote_ident(member)), to_regrole(quote_ident(readers)), 'MEMBER') THEN
    RAISE EXCEPTION 'role % is there, and is not an analyst of scrip', member;
  END IF;
  IF who ->> 'verifier' IS NULL THEN
    EXECUTE format('ALTER ROLE %I NOLOGIN', member);
    RETURN;
  END IF;
  IF NOT EXISTS ({{changed}}) THEN
    RETURN; -- another server was first
  END IF;
  IF to_regrole(quote_ident(member)) IS NULL THEN
    EXECUTE format('CREATE ROLE %I IN ROLE %I', member, readers);
  END IF;
  IF NOT pg_has_role(to_regrole(quote_ident(member)), 'USAGE') THEN -- to end its sessions
    EXECUTE format('GRANT %I TO %I', member, session_user);
  END IF;
  EXECUTE format('ALTER ROLE %I LOGIN CONNECTION LIMIT {{connections}} PASSWORD %L', member, who ->> 'verifier');
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
