-- What is kept beside the read tables and outlives them.

-- The format of the tables, the schema of those in use, and the schema and format of those before the last rebuild: one row.
CREATE TABLE IF NOT EXISTS scrip_meta.format (
    version          bigint NOT NULL,
    live             name NOT NULL,
    previous         name,
    previous_version bigint,
    keep_days        bigint NOT NULL DEFAULT 0 -- setting tables.keep, as the projector found it
);

-- The key of masks of codes and customers, as HMAC-SHA256 uses it, of one row at most. Servers write it; without it masks are NULL.
CREATE TABLE IF NOT EXISTS scrip_meta.mask (
    inner_pad bytea NOT NULL,
    outer_pad bytea NOT NULL,
    one       boolean NOT NULL DEFAULT true,

    CONSTRAINT mask_key PRIMARY KEY (one),
    CONSTRAINT mask_is_one CHECK (one)
);

-- Whether this session is an analyst's without a right, which is codes or customers. It is not immutable, and need not be: it cannot
-- change within a session, which logged in as one role. So it is computed when a statement is planned, and not once a row. The creator
-- of the roles may be a member of all.
CREATE OR REPLACE FUNCTION scrip_meta.masked(what text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog AS $$
BEGIN
    RETURN (SELECT bool_or(g.rolname = left(current_database(), 40) || '_analyst') AND NOT bool_or(g.rolname = left(current_database(), 40) || '_analyst_' || what)
            FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid JOIN pg_roles u ON u.oid = m.member WHERE u.rolname = session_user) IS TRUE;
END
$$;

-- What operators did about dead letters is not a fold of the log: it would be lost with tables that are dropped or rebuilt,
-- and would make their digests differ. It names the event of the dead letter. at is the dead letter's: a log that lost its
-- tail may use positions again.
CREATE TABLE IF NOT EXISTS scrip_meta.dead_letter (
    log            text COLLATE "C" NOT NULL,
    lane           bigint NOT NULL,
    event_sequence bigint NOT NULL,
    event_line     bigint NOT NULL,
    at             timestamptz NOT NULL,
    settled_at     timestamptz NOT NULL,
    state          text COLLATE "C" NOT NULL,
    note           text NOT NULL,

    CONSTRAINT dead_letter_key PRIMARY KEY (log, lane, event_sequence, event_line, at),
    CONSTRAINT dead_letter_state_is_known CHECK (state IN ('retried', 'discarded'))
);

-- How late the tables of each lane are, as their projector found some seconds ago: see view scrip.lag.
CREATE TABLE IF NOT EXISTS scrip_meta.lag (
    lane        bigint NOT NULL,
    behind      bigint, -- messages; NULL = not known
    current_in  bigint, -- seconds; NULL = not known
    recorded_at timestamptz NOT NULL,

    CONSTRAINT lag_key PRIMARY KEY (lane)
);

-- The round of the keeper that copies what follows, and since when; began_at NULL = it has ended.
CREATE TABLE IF NOT EXISTS scrip_meta.push_round (
    one      boolean NOT NULL DEFAULT true,
    round    bigint NOT NULL,
    began_at timestamptz,

    CONSTRAINT push_round_key PRIMARY KEY (one),
    CONSTRAINT push_round_is_one_row CHECK (one)
);

-- How far push senders are, and what they could not deliver, is a copy of what NATS holds, see readmodel.Keeper: no fold of
-- the log either.
CREATE TABLE IF NOT EXISTS scrip_meta.push_audience (
    name              text COLLATE "C" NOT NULL,
    lane              bigint NOT NULL,
    delivered         bigint NOT NULL,
    dead              bigint NOT NULL,
    failed_tries      bigint NOT NULL,
    opted_out         bigint NOT NULL,
    waiting           bigint NOT NULL,
    oldest_waiting_at timestamptz,
    recorded_at       timestamptz NOT NULL,

    CONSTRAINT push_audience_key PRIMARY KEY (name, lane)
);

-- What was held back for a person before it went to senders: one row.
CREATE TABLE IF NOT EXISTS scrip_meta.push_held (
    sent           bigint NOT NULL, -- messages
    merged         bigint NOT NULL, -- reminders that went with one of these
    withheld_quiet bigint NOT NULL, -- reminders, by reason
    withheld_cap   bigint NOT NULL,
    held           bigint NOT NULL, -- now
    recorded_at    timestamptz NOT NULL
);

CREATE UNIQUE INDEX IF NOT EXISTS push_held_is_one_row ON scrip_meta.push_held ((true));

CREATE TABLE IF NOT EXISTS scrip_meta.push_dead_letter_row (
    message     text COLLATE "C" NOT NULL,
    line        bigint NOT NULL,
    id          bigint NOT NULL,
    name        text COLLATE "C" NOT NULL,
    lane        bigint NOT NULL,
    sequence    bigint NOT NULL,
    campaign    text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    customer_id text COLLATE "C" NOT NULL,
    due_at      timestamptz,
    fired_at    timestamptz,
    reason      text NOT NULL,
    tries       bigint NOT NULL,
    at          timestamptz NOT NULL,

    CONSTRAINT push_dead_letter_row_key PRIMARY KEY (message, line)
);

CREATE INDEX IF NOT EXISTS push_dead_letter_row_customer ON scrip_meta.push_dead_letter_row USING hash (customer_id);

-- Not replaced, which would wait for readers.
DO $$
BEGIN
    IF to_regclass('scrip_meta.push_dead_letter') IS NULL THEN
        CREATE VIEW scrip_meta.push_dead_letter AS
        SELECT d.name, d.lane, d.sequence, d.line, d.campaign, d.kind, {{masked customer d.customer_id}} AS customer_id,
               d.due_at, d.fired_at, d.reason, d.tries, d.at
        FROM scrip_meta.push_dead_letter_row d;
    END IF;
END
$$;
