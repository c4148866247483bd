  -- Role readers may read what the contract has, in schema scrip and in copies of the tables. A part of a body that declares
  -- readers, and was as a record.
  FOR was IN SELECT n.nspname AS name, string_agg(format('%I.%I', n.nspname, c.relname), ', ') AS relations
      FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
      WHERE c.relkind = 'v' AND c.relname = ANY ('{{views}}') AND {{readable}} AND NOT has_table_privilege(readers, c.oid, 'SELECT')
      GROUP BY n.nspname LOOP
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', was.name, readers);
    EXECUTE format('GRANT SELECT ON %s TO %I', was.relations, readers);
  END LOOP;
