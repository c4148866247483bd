-- scrip.digest(): what is in the tables, as one line per table, regardless of the order of rows on disk.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION scrip.digest() RETURNS TABLE (relation text, row_count bigint, digest text)
LANGUAGE plpgsql STABLE
-- Rows are digested as text, which must not depend on who asks.
SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET search_path = pg_catalog
AS $$
DECLARE
    t record;
BEGIN
    -- checkpoint carries the time of writing. Processed expiry tasks are removed after a while.
    FOR t IN SELECT c.relname::text AS name FROM pg_class c
             WHERE c.relnamespace = 'scrip'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> 'checkpoint'
             ORDER BY c.relname COLLATE "C"
    LOOP
        relation := t.name;
        -- Two seeds make 128 bits; sums do not depend on order and notice a row that is there twice.
        EXECUTE format('SELECT count(*), to_hex(mod(coalesce(sum(hashtextextended(x::text, 0)::numeric), 0), 9223372036854775807)::bigint)'
            || ' || to_hex(mod(coalesce(sum(hashtextextended(x::text, 1)::numeric), 0), 9223372036854775807)::bigint)'
            || ' FROM scrip.%I x%s', t.name, CASE t.name WHEN 'expiry_task' THEN ' WHERE state <> ''processed''' ELSE '' END)
            INTO row_count, digest;
        RETURN NEXT;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION scrip.digest();
