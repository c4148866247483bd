-- Schema scrip: what is made here is in it, and every other scrip.NAME is a relation in {{tables}}, the schema of the tables in use.
-- {{staying NAME}} leaves out rows x of it that are not deleted yet.
-- A rebuild replaces all of it, so grants and what others built on it stay. Columns are those of CONTRACT.md, and no view is made
-- of another one: a statement that reads one waits for an exchange before it has locked anything.

CREATE OR REPLACE VIEW scrip.campaign AS
SELECT campaign, status, category, codes, claimed, redeemed, expired, voided, opens_at, closes_at, expires_at, created_at, benefit, prefix,
       per_customer, max_redemptions, coalesce(priority, 'normal') AS priority, valid_for_us * interval '1 microsecond' AS valid_for
FROM scrip.campaign;

CREATE OR REPLACE VIEW scrip.campaign_event AS SELECT campaign, at, type, by FROM scrip.campaign_event;

CREATE OR REPLACE VIEW scrip.coupon_event AS
SELECT campaign, n, at, what, by, expires_at, order_id, reason FROM scrip.coupon_event x WHERE {{staying coupon_event}};

CREATE OR REPLACE VIEW scrip.allotment AS SELECT campaign, batch, from_n, through_n, allotted_at, expires_at FROM scrip.allotment x
WHERE {{staying allotment}};

CREATE OR REPLACE VIEW scrip.expiry_task AS SELECT campaign, due_at, pending, redeemed, expired, state FROM scrip.expiry_task;

CREATE OR REPLACE VIEW scrip.reminder AS
SELECT campaign, {{masked customer x.customer_id}} AS customer_id, kind, n, before_us * interval '1 microsecond' AS before, due_at, state
FROM scrip.reminder x WHERE {{staying reminder}};

CREATE OR REPLACE VIEW scrip.campaign_stats AS
SELECT campaign, day, attribute, value, claimed, redeemed, rolled_back, voided FROM scrip.campaign_stats;

CREATE OR REPLACE VIEW scrip.refusal_stats AS SELECT campaign, day, reason, refused, lane FROM scrip.refusal_stats;

CREATE OR REPLACE VIEW scrip.checkpoint AS SELECT projection, lane, sequence, updated_at FROM scrip.checkpoint;

-- Lines have codes and customers.
CREATE OR REPLACE VIEW scrip.dead_letter AS
SELECT stream, lane, sequence, line, reason,
       CASE WHEN NOT scrip_meta.masked('codes') AND NOT scrip_meta.masked('customers') THEN payload END AS payload, at
FROM scrip.dead_letter;

-- The status of a coupon follows from its row and its campaign. Ten million coupons expire by one update of
-- campaign.expired_through.
--
-- Every coupon has its campaign. LEFT JOIN, because the planner then expects every coupon, whatever it knows of campaigns, and
-- leaves the campaign out where no column needs it.
--
-- Analysts without the right to codes, or to customers, get the masks of `scrip replay` and GET /v1/events: {{masked}} is what schema.go
-- makes of it. masked() is known when a statement is planned, so for all others it is the column itself, with its index.
CREATE OR REPLACE VIEW scrip.coupon AS
SELECT r.campaign, r.n,
       {{masked code r.code}} AS code,
       {{masked customer r.customer_id}} AS customer_id,
       CASE WHEN r.voided_at IS NOT NULL THEN 'voided'
            WHEN r.redeemed_count >= c.max_redemptions THEN 'redeemed'
            WHEN coalesce(r.expires_at, c.expires_at) <= c.expired_through THEN 'expired'
            ELSE 'claimed' END AS status,
       r.claimed_at,
       coalesce(r.expires_at, c.expires_at) AS expires_at,
       r.redeemed_count, r.redeemed_at, r.voided_at, r.void_reason, r.attributes
FROM scrip.coupon_row r
LEFT JOIN scrip.campaign c ON c.campaign = r.campaign;

CREATE OR REPLACE VIEW scrip.redemption AS
SELECT x.campaign, x.n,
       {{masked code x.code}} AS code,
       {{masked customer x.customer_id}} AS customer_id, x.order_id, x.redeemed_at, x.rolled_back_at
FROM scrip.redemption_row x WHERE {{staying redemption_row}};

-- How late the tables are: messages that they lack, the age of the newest event in them while they lack any, and in
-- how long they are current at the rate of the last seconds, NULL while they do not catch up. All are NULL while no
-- projector knows: one at work records each 10 seconds, so older numbers are of one that died. By the time of the
-- statement: a transaction may be open for long.
CREATE OR REPLACE VIEW scrip.lag AS
SELECT k.lane, f.behind,
       CASE WHEN f.behind > 0 THEN greatest(extract(epoch FROM statement_timestamp() - k.log_time), 0)::bigint WHEN f.behind = 0 THEN 0 END
           AS behind_seconds,
       f.current_in AS current_in_seconds, l.recorded_at
FROM scrip.checkpoint k LEFT JOIN scrip_meta.lag l ON l.lane = k.lane
LEFT JOIN scrip_meta.lag f ON f.lane = k.lane AND f.recorded_at > statement_timestamp() - interval '30 seconds'
WHERE k.projection = 'tables';

-- What is in the tables, as one line per table, regardless of the order of rows on disk.
CREATE OR REPLACE FUNCTION scrip.digest() RETURNS TABLE (relation text, row_count bigint, digest text)
LANGUAGE plpgsql STABLE
-- Rows are digested as text, which must not depend on who asks.
SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET search_path = pg_catalog
AS $$
DECLARE
    t record;
BEGIN
    -- checkpoint carries the time of writing. How coupons are divided into segments differs. Processed expiry tasks are
    -- removed after a while, and rows that leave are not all deleted yet.
    FOR t IN SELECT c.relname::text AS name FROM pg_class c
             WHERE c.relnamespace = '{{tables}}'::regnamespace AND c.relname !~ '^coupon_claim_[0-9]' AND (c.relkind = 'r' OR c.relname = 'coupon_row')
               AND c.relname NOT IN ('checkpoint', 'segment', 'coupon_state', 'leaving')
             ORDER BY c.relname COLLATE "C"
    LOOP
        relation := t.name;
        -- Two seeds make 128 bits; sums do not depend on order and notice a row that is there twice.
        EXECUTE format('SELECT count(*), to_hex(mod(coalesce(sum(hashtextextended(x::text, 0)::numeric), 0), 9223372036854775807)::bigint)'
            || ' || to_hex(mod(coalesce(sum(hashtextextended(x::text, 1)::numeric), 0), 9223372036854775807)::bigint)'
            || ' FROM {{tables}}.%I x%s', t.name, CASE t.name WHEN 'expiry_own' THEN ' WHERE processed_at IS NULL' WHEN 'allotment' THEN ' WHERE {{staying allotment}}'
                WHEN 'coupon_event' THEN ' WHERE {{staying coupon_event}}' WHEN 'expiry_event' THEN ' WHERE {{staying expiry_event}}'
                WHEN 'redemption_row' THEN ' WHERE {{staying redemption_row}}' WHEN 'reminder' THEN ' WHERE {{staying reminder}}' ELSE '' END)
            INTO row_count, digest;
        RETURN NEXT;
    END LOOP;
END
$$;

-- What is due and not done, and what will be, for whoever has a database client and no Prometheus.
--
-- Both show what the tables have. While the projector is behind, something that was done shows as due. They are functions
-- and not views, so that an operator may drop any one of them. They count what their callers may not read, and so have the
-- rights of their owner.

-- due is coupons or reminders; oldest_due_seconds is the number to alert on. Reminders are looked for among those that
-- fell due in the last day: what fires or is dropped stays in the table, and the grace is minutes.
CREATE OR REPLACE FUNCTION scrip.backlog() RETURNS TABLE (lane bigint, priority text, kind text, due bigint, oldest_due_at timestamptz,
    oldest_due_seconds double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog
AS $$
SELECT d.lane, d.priority, d.kind, sum(d.due)::bigint AS due, min(d.due_at) AS oldest_due_at,
       extract(epoch FROM now() - min(d.due_at))::double precision AS oldest_due_seconds
FROM (
    SELECT c.lane, coalesce(c.priority, 'normal') AS priority, 'expiry' AS kind, t.live AS due, t.due_at
    FROM scrip.expiry_task t JOIN scrip.campaign c ON c.campaign = t.campaign
    WHERE t.processed_at IS NULL AND t.live > 0 AND t.due_at <= now()
    UNION ALL
    SELECT c.lane, coalesce(c.priority, 'normal'), 'reminder', r.due, r.due_at
    FROM scrip.campaign c CROSS JOIN (VALUES ('opens'), ('expires')) k (kind) CROSS JOIN LATERAL (
        SELECT count(*) AS due, min(x.due_at) AS due_at FROM scrip.reminder x
        WHERE x.campaign = c.campaign AND x.kind = k.kind AND x.due_at > now() - interval '1 day' AND x.due_at <= now()
          AND x.state = 'pending' AND {{staying reminder}}) r
    WHERE r.due > 0
) d
GROUP BY d.lane, d.priority, d.kind
$$;

-- What falls due in each second of the next hour; seconds in which nothing does are left out.
CREATE OR REPLACE FUNCTION scrip.due_next_hour() RETURNS TABLE (second timestamptz, priority text, kind text, due bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog
AS $$
SELECT d.due_at AS second, d.priority, d.kind, sum(d.due)::bigint AS due
FROM (
    SELECT date_trunc('second', t.due_at) AS due_at, coalesce(c.priority, 'normal') AS priority, 'expiry' AS kind, t.live AS due
    FROM scrip.expiry_task t JOIN scrip.campaign c ON c.campaign = t.campaign
    WHERE t.processed_at IS NULL AND t.live > 0 AND t.due_at > now() AND t.due_at <= now() + interval '1 hour'
    UNION ALL
    SELECT r.due_at, coalesce(c.priority, 'normal'), 'reminder', r.due
    FROM scrip.campaign c CROSS JOIN (VALUES ('opens'), ('expires')) k (kind) CROSS JOIN LATERAL (
        SELECT date_trunc('second', x.due_at) AS due_at, count(*) AS due FROM scrip.reminder x
        WHERE x.campaign = c.campaign AND x.kind = k.kind AND x.due_at > now() AND x.due_at <= now() + interval '1 hour'
          AND x.state = 'pending' AND {{staying reminder}}
        GROUP BY 1) r
) d
GROUP BY d.due_at, d.priority, d.kind
$$;
