-- The body of a function with the parameter wanted: the analysts in force, [{"id","verifier","codes"}…]. It runs with the rights
-- of the function's owner, or of the caller. Repeated, it changes nothing.
DECLARE
  readers name := left(current_database(), 40) || '_analyst';
  clear name := readers || '_codes';
  who record;
  member name;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('scrip analysts', 0));
  IF to_regrole(quote_ident(readers)) IS NULL THEN
    EXECUTE format('CREATE ROLE %I', readers);
  END IF;
  IF to_regrole(quote_ident(clear)) IS NULL THEN
    EXECUTE format('CREATE ROLE %I', clear);
  END IF;
  -- The lines of dead letters have codes.
  EXECUTE format('GRANT USAGE ON SCHEMA scrip, scrip_meta TO %I', readers);
  EXECUTE format('GRANT SELECT ON {{relations}} TO %I', readers);
  EXECUTE format('GRANT SELECT (stream, lane, sequence, line, reason, at) ON scrip.dead_letter TO %I', readers);
  EXECUTE format('GRANT SELECT ON scrip.dead_letter TO %I', clear);
  FOR who IN SELECT * FROM jsonb_to_recordset(wanted) AS x (id text, verifier text, codes boolean) LOOP
    member := 'analyst_' || who.id;
    IF who.id !~ '^[0-9a-z]{8}$' OR who.verifier !~ '^SCRAM-SHA-256\$' THEN
      RAISE EXCEPTION 'not an analyst: %', who.id;
    END IF;
    IF to_regrole(quote_ident(member)) IS NULL THEN
      EXECUTE format('CREATE ROLE %I CONNECTION LIMIT 10 IN ROLE %I', member, readers);
    ELSIF NOT pg_has_role(to_regrole(quote_ident(member)), to_regrole(quote_ident(readers)), 'MEMBER') THEN
      RAISE EXCEPTION 'role % is there, and is not an analyst of scrip', member;
    END IF;
    CONTINUE WHEN (SELECT rolcanlogin FROM pg_roles WHERE rolname = member);
    EXECUTE format('ALTER ROLE %I LOGIN PASSWORD %L', member, who.verifier);
    EXECUTE format('ALTER ROLE %I SET statement_timeout = %L', member, '60s');
    EXECUTE format('ALTER ROLE %I SET default_transaction_read_only = on', member);
    IF who.codes THEN
      EXECUTE format('GRANT %I TO %I', clear, member);
    END IF;
    IF NOT pg_has_role(to_regrole(quote_ident(member)), 'USAGE') THEN -- to end its sessions
      EXECUTE format('GRANT %I TO %I', member, session_user);
    END IF;
  END LOOP;
  FOR member IN SELECT u.rolname FROM pg_roles u JOIN pg_auth_members m ON m.member = u.oid
    WHERE m.roleid = to_regrole(quote_ident(readers)) AND u.rolcanlogin AND u.rolname ~ '^analyst_'
      AND NOT EXISTS (SELECT FROM jsonb_to_recordset(wanted) AS x (id text) WHERE u.rolname = 'analyst_' || x.id)
  LOOP
    EXECUTE format('ALTER ROLE %I NOLOGIN', member);
  END LOOP;
  PERFORM pg_terminate_backend(a.pid) FROM pg_stat_activity a JOIN pg_roles u ON u.rolname = a.usename JOIN pg_auth_members m ON m.member = u.oid
    WHERE m.roleid = to_regrole(quote_ident(readers)) AND NOT u.rolcanlogin;
END
