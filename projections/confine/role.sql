-- The body of a function with the parameters wanted (schema) and secret (password); it returns the role. It runs with the
-- rights of the function's owner, so it checks the rights of session_user, the caller. A schema that exists keeps its owner. Of two
-- that run at the same time one may fail with an error of the catalog; its caller tries again.
DECLARE
  me name := session_user;
  projections name := left(current_database(), 40) || '_projection';
  readers name := left(current_database(), 40) || '_analyst';
  clear name := readers || '_codes';
  wanted_role name := 'scrip_' || left(wanted, 40) || '_' || left(md5(current_database() || '/' || wanted), 8);
  role_oid oid;
  schema_oid oid;
  schema_owner oid;
  tables oid := to_regnamespace('scrip');
BEGIN
  IF wanted !~ '^[a-z][a-z0-9_]{0,59}$' OR wanted ~ '^(pg_|scrip_)' OR wanted IN ('scrip', 'public', 'information_schema') THEN
    RAISE EXCEPTION 'schema % is not for projections', wanted USING ERRCODE = 'invalid_schema_name';
  END IF;
  SELECT oid, nspowner INTO schema_oid, schema_owner FROM pg_namespace WHERE nspname = wanted;
  -- pg_has_role reads a cache, which does not have yet what another session committed a moment ago with the schema.
  IF schema_oid IS NOT NULL AND NOT pg_has_role(me, schema_owner, 'USAGE')
      AND NOT EXISTS (SELECT FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.member WHERE m.roleid = schema_owner AND r.rolname = me) THEN
    RAISE EXCEPTION 'schema % belongs to role %, and role % is no member of it', wanted, pg_get_userbyid(schema_owner), me USING ERRCODE = 'insufficient_privilege';
  END IF;
  IF to_regrole(quote_ident(wanted_role)) IS NULL THEN
    EXECUTE format('CREATE ROLE %I', wanted_role);
  END IF;
  role_oid := to_regrole(quote_ident(wanted_role));
  EXECUTE format('ALTER ROLE %I LOGIN CONNECTION LIMIT {{connections}} PASSWORD %L', wanted_role, secret);
  EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = %L', wanted_role, '{{idle}}');
  IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    EXECUTE format('ALTER ROLE %I SET temp_file_limit = %L', wanted_role, '{{temp}}');
  END IF;
  BEGIN
    IF to_regrole(quote_ident(projections)) IS NULL THEN
      EXECUTE format('CREATE ROLE %I', projections);
    END IF;
    EXECUTE format('GRANT %I TO %I', projections, wanted_role); -- its sessions are guarded
  EXCEPTION WHEN insufficient_privilege THEN
    NULL; -- another role made that group; servers end sessions of its members alone
  END;
  EXECUTE format('GRANT %I TO %I', wanted_role, me);
  IF NOT has_database_privilege(role_oid, current_database(), 'TEMPORARY') THEN
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO %I', current_database(), wanted_role);
  END IF;
  IF schema_oid IS NULL THEN
    EXECUTE format('CREATE SCHEMA %I AUTHORIZATION %I', wanted, wanted_role);
  END IF;
  IF tables IS NOT NULL AND (has_schema_privilege(me, tables, 'USAGE WITH GRANT OPTION') OR pg_has_role(me, (SELECT nspowner FROM pg_namespace WHERE oid = tables), 'USAGE')) THEN
    EXECUTE format('GRANT USAGE ON SCHEMA scrip TO %I', wanted_role);
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA scrip TO %I', wanted_role);
    -- Its file may name analysts as readers before there is one. Who makes these roles administers them, so it is a superuser's
    -- function, or the owner of the tables.
    IF current_user <> me OR current_user = (SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE oid = tables) THEN
      IF to_regrole(quote_ident(readers)) IS NULL THEN
        EXECUTE format('CREATE ROLE %I', readers);
      END IF;
      IF to_regrole(quote_ident(clear)) IS NULL THEN
        EXECUTE format('CREATE ROLE %I', clear);
      END IF;
    END IF;
  END IF;
  RETURN wanted_role;
END
