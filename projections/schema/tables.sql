-- The tables behind schema scrip, and what they are computed from; package schema gives each schema of them a number.
--
-- Text that is compared is COLLATE "C": equal bytes are equal, order does not depend on the operating system.
-- No foreign keys: rows are only ever written by the projector, in the order of the log, and a check per row would cost
-- more than it finds. What must hold is stated as named CHECK constraints; a valid log cannot violate one.
--
-- A place is sequence * 1048576 + line of an event in its campaign's lane: one number, so that ten million coupons carry
-- eight bytes each, and later in the lane is greater. A message has fewer lines than that by far.

-- Campaigns, coupons and redemptions.

CREATE TABLE scrip.campaign (
    campaign        text COLLATE "C" NOT NULL,
    status          text COLLATE "C" NOT NULL,
    category        text COLLATE "C",
    codes           bigint NOT NULL GENERATED ALWAYS AS (generated_codes + imported_codes) STORED,
    claimed         bigint NOT NULL,
    redeemed        bigint NOT NULL,
    expired         bigint NOT NULL GENERATED ALWAYS AS
        (own_expired + CASE WHEN expires_at <= expired_through THEN inheriting_live ELSE 0 END) STORED,
    voided          bigint NOT NULL,
    opens_at        timestamptz NOT NULL, -- created_at if the campaign names no opening
    closes_at       timestamptz,          -- expires_at if the campaign names no closing
    expires_at      timestamptz,
    created_at      timestamptz NOT NULL,

    lane            bigint NOT NULL,
    number          bigint NOT NULL,
    per_customer    bigint NOT NULL,
    max_redemptions bigint NOT NULL,
    valid_for_us    bigint,
    prefix          text,
    priority        text,
    benefit         text, -- JSON as given; text because jsonb refuses \u0000
    sold_out_at     timestamptz,
    expired_through timestamptz, -- watermark: coupons that expire up to it have fallen
    named_opens_at  timestamptz, -- as the campaign names it: what reminders of kind opens hang on
    generated_codes bigint NOT NULL,
    imported_codes  bigint NOT NULL,
    highest         bigint NOT NULL DEFAULT 0, -- number of a coupon so far: a claim of it, or of a lower one, is there already
    -- Coupons without an expiry of their own: when the campaign's end moves, these counts move with it. They are the expiry
    -- task at the end, which was announced at end_processed_at, and is shown no more when end_removed.
    inheriting_live     bigint NOT NULL,
    inheriting_redeemed bigint NOT NULL,
    end_processed_at    timestamptz,
    end_removed         boolean NOT NULL DEFAULT false,
    own_expired         bigint NOT NULL DEFAULT 0, -- of coupons with an expiry of their own
    removed             boolean NOT NULL DEFAULT false, -- its coupons have left the tables, and its settings have not changed since
    -- What was counted on the newest day; that of earlier ones is in day_stats. A claim so changes this row alone.
    stats_day       timestamptz,
    day_claimed     bigint NOT NULL DEFAULT 0,
    day_redeemed    bigint NOT NULL DEFAULT 0,
    day_rolled_back bigint NOT NULL DEFAULT 0,
    day_voided      bigint NOT NULL DEFAULT 0,

    CONSTRAINT campaign_key PRIMARY KEY (campaign),
    CONSTRAINT campaign_status_is_known CHECK (status IN ('active', 'paused', 'ended')),
    CONSTRAINT campaign_redeems_at_least_once CHECK (max_redemptions >= 1),
    CONSTRAINT campaign_counts_are_not_negative CHECK (claimed >= 0 AND redeemed >= 0 AND expired >= 0 AND voided >= 0
        AND inheriting_live >= 0 AND inheriting_redeemed >= 0),
    CONSTRAINT campaign_counts_are_of_claimed CHECK (redeemed + expired + voided <= claimed)
) WITH (fillfactor = 50); -- updated with every batch: room for HOT updates

-- What falls due at the end of campaigns. No claim changes what it depends on.
CREATE INDEX campaign_end ON scrip.campaign (expires_at) WHERE NOT end_removed;
CREATE INDEX campaign_kept ON scrip.campaign (expires_at) WHERE NOT removed;

-- One row per claimed coupon, and per printed one to which something happened (customer_id '' until a redemption names one):
-- what its claim says. What happens to a coupon later is in coupon_state.
--
-- The rows are in segments, see projections/segments. Claims go to a young segment, which has the key alone; a full one gets
-- the other indexes and is never written again. Of 13 µs that a row with all of them costs beside eight million, eleven go
-- to places in the two on random text.
CREATE TABLE scrip.coupon_claim (
    code           text COLLATE "C" NOT NULL, -- first, because lookups scan young segments for it
    n              bigint NOT NULL,
    claimed_at     timestamptz NOT NULL,
    expires_at     timestamptz, -- its own, NULL = the campaign's
    claimed_place  bigint NOT NULL,
    segment        integer NOT NULL,
    campaign       text COLLATE "C" NOT NULL,
    customer_id    text COLLATE "C" NOT NULL,
    attributes     text, -- JSON as given

    CONSTRAINT coupon_claim_counts_from_one CHECK (n >= 1)
) PARTITION BY LIST (segment);

-- Numbers fall from 0, so that newer segments are looked at first; none is used twice. Rows of a segment with merged_at are in
-- another one as well, or in none, and view coupon_row leaves them out: merged_by is the transaction since when. It is a copy
-- that does not have the place of its sources yet while merged_by is NULL. See projections/segments.
CREATE TABLE scrip.segment (
    segment   integer NOT NULL,
    rows      bigint, -- NULL: a young one, or a copy
    merged_at timestamptz,
    merged_by xid8,
    sources   integer[], -- of a copy
    owner     bigint,  -- of segment 0: number of the process that may change segments
    lowest    integer, -- of segment 0: the last number that was used

    CONSTRAINT segment_key PRIMARY KEY (segment),
    CONSTRAINT segment_merged_has_time CHECK (merged_by IS NULL OR merged_at IS NOT NULL)
);

CREATE INDEX segment_merged ON scrip.segment (segment) WHERE merged_at IS NOT NULL;

-- Segment 0 has all indexes from the start: of printed coupons, of which there are few, and whose customer may come later.
CREATE TABLE scrip.coupon_claim_0 PARTITION OF scrip.coupon_claim (
    CONSTRAINT coupon_claim_0_key PRIMARY KEY (campaign, n)
) FOR VALUES IN (0);

-- Hash indexes: half the cost of a btree on random text, and no limit on its length.
CREATE INDEX coupon_claim_0_code ON scrip.coupon_claim_0 USING hash (code);
CREATE INDEX coupon_claim_0_customer ON scrip.coupon_claim_0 USING hash (customer_id);

INSERT INTO scrip.segment (segment, rows, owner, lowest) VALUES (0, 0, 0, 0);

-- What happened to a coupon after its claim; no row = nothing.
CREATE TABLE scrip.coupon_state (
    n              bigint NOT NULL,
    redeemed_count bigint NOT NULL,
    expires_at     timestamptz, -- its own; NULL = the campaign's
    redeemed_at    timestamptz,
    voided_at      timestamptz,
    campaign       text COLLATE "C" NOT NULL,
    void_reason    text,

    CONSTRAINT coupon_state_key PRIMARY KEY (campaign, n),
    CONSTRAINT coupon_state_redeemed_has_time CHECK ((redeemed_count > 0) = (redeemed_at IS NOT NULL))
) WITH (fillfactor = 85);

-- Coupons that have left the tables, by setting tables.keep: numbers up to through of a campaign. What happens to one
-- of them later changes nothing. Rows of coupon_claim are hidden until their segment is rewritten, all others until they are
-- deleted, see table leaving. redeemed and expired are how many such coupons of the campaign there are. One row a campaign: in how many
-- steps they left depends on when the setting was changed, and tables that show the same are to be the same.
CREATE TABLE scrip.removal (
    through  bigint NOT NULL,
    redeemed bigint NOT NULL,
    expired  bigint NOT NULL,
    campaign text COLLATE "C" NOT NULL,

    CONSTRAINT removal_key PRIMARY KEY (campaign)
);

-- Campaigns whose coupons have left the tables, while rows that the views hide are not deleted yet: those with numbers of coupons
-- up to through, of reminders up to reminders, and expiries up to expiries. How far that is depends on the process, so it is not compared.
CREATE TABLE scrip.leaving (
    through   bigint NOT NULL,
    reminders bigint,
    expiries  timestamptz,
    campaign  text COLLATE "C" NOT NULL,

    CONSTRAINT leaving_key PRIMARY KEY (campaign)
);

-- Both, without the status: see view coupon.
CREATE VIEW scrip.coupon_row AS
SELECT r.n, r.claimed_at, coalesce(s.redeemed_count, 0) AS redeemed_count,
       CASE WHEN s.n IS NULL THEN r.expires_at ELSE s.expires_at END AS expires_at,
       s.redeemed_at, s.voided_at, r.campaign, r.code, r.customer_id, r.attributes, s.void_reason, r.claimed_place
FROM scrip.coupon_claim r LEFT JOIN scrip.coupon_state s ON s.campaign = r.campaign AND s.n = r.n
WHERE NOT EXISTS (SELECT FROM scrip.segment g WHERE g.segment = r.segment AND g.merged_at IS NOT NULL)
  AND NOT EXISTS (SELECT FROM scrip.removal m WHERE m.campaign = r.campaign AND m.through >= r.n);

-- One row per block of printed coupons, however many: they count as claimed, and have rows of coupon_claim from the first thing
-- that happens to each.
CREATE TABLE scrip.allotment (
    from_n      bigint NOT NULL,
    through_n   bigint NOT NULL,
    allotted_at timestamptz NOT NULL,
    expires_at  timestamptz, -- its own; NULL = the campaign's
    place       bigint NOT NULL,
    campaign    text COLLATE "C" NOT NULL,
    batch       text COLLATE "C" NOT NULL,

    CONSTRAINT allotment_key PRIMARY KEY (campaign, from_n),
    CONSTRAINT allotment_is_a_block CHECK (from_n >= 1 AND through_n >= from_n)
);

-- One row per redemption, named by its place in the log: one order may redeem, be rolled back and redeem again.
CREATE TABLE scrip.redemption_row (
    n              bigint NOT NULL,
    redeemed_at    timestamptz NOT NULL,
    rolled_back_at timestamptz,
    sequence       bigint NOT NULL, -- of the event message
    line           bigint NOT NULL, -- of the event in it, from 1
    campaign       text COLLATE "C" NOT NULL,
    code           text COLLATE "C" NOT NULL,
    customer_id    text COLLATE "C" NOT NULL,
    order_id       text COLLATE "C" NOT NULL,
    redeemed_count bigint, -- of the coupon, with this redemption; NULL: its campaign allowed one

    CONSTRAINT redemption_row_key PRIMARY KEY (campaign, n, sequence, line)
);

-- A hash index, as those of coupon_claim.
CREATE INDEX redemption_row_order ON scrip.redemption_row USING hash (order_id);
-- The redemptions that count, of coupons that may have several: when one of them is rolled back, the newest of the others is
-- found, however many were rolled back after it. Redemptions of other coupons, nearly all, do not pay for it. Its collation
-- differs from that of the column, so only queries that name it use the index, and those use no other.
CREATE INDEX redemption_row_open ON scrip.redemption_row (campaign COLLATE "POSIX", n, redeemed_at)
    WHERE redeemed_count IS NOT NULL AND rolled_back_at IS NULL;

-- One row per event that happened to a coupon besides its claim and its redemptions.
CREATE TABLE scrip.coupon_event (
    n          bigint NOT NULL,
    place      bigint NOT NULL,
    at         timestamptz NOT NULL,
    expires_at timestamptz,          -- extended: until when
    own_before timestamptz,          -- extended: the expiry of its own the coupon had before; NULL = the campaign's
    campaign   text COLLATE "C" NOT NULL,
    what       text COLLATE "C" NOT NULL, -- the change of the event's type, such as voided
    order_id   text COLLATE "C",     -- rolled back
    reason     text,                 -- voided
    by         text COLLATE "C",     -- the person whose command did it; NULL = a program's

    CONSTRAINT coupon_event_key PRIMARY KEY (campaign, n, place),
    CONSTRAINT coupon_event_rollback_has_order CHECK ((what = 'rolled_back') = (order_id IS NOT NULL)),
    CONSTRAINT coupon_event_extension_has_expiry CHECK ((what = 'extended') = (expires_at IS NOT NULL))
);

-- Extensions and voids, found among any number of rollbacks; see redemption_row_open for the collation.
CREATE INDEX coupon_event_change ON scrip.coupon_event (campaign COLLATE "POSIX", n, place) WHERE order_id IS NULL;

-- One row per event that changed a campaign as a whole.
CREATE TABLE scrip.campaign_event (
    place    bigint NOT NULL,
    at       timestamptz NOT NULL,
    campaign text COLLATE "C" NOT NULL,
    type     text COLLATE "C" NOT NULL, -- of the event, such as campaign.updated
    by       text COLLATE "C",          -- as in coupon_event

    CONSTRAINT campaign_event_key PRIMARY KEY (campaign, place)
);

-- Those that have settings, of which each is compared with the one before, among any number of others.
CREATE INDEX campaign_event_settings ON scrip.campaign_event (campaign, place) WHERE type IN ('campaign.created', 'campaign.updated');

-- What falls due: expiries and reminders.

-- One row per campaign and instant at which coupons of it fall that have an expiry of their own. Every claimed one that expires
-- at due_at and is not void counts in exactly one of two stored numbers: live or redeemed. Whether live ones show as pending or as
-- expired follows from the state alone, so that announcing an expiry touches one row here, however many coupons fall.
-- A row in which nothing counts any more is removed.
CREATE TABLE scrip.expiry_own (
    due_at       timestamptz NOT NULL,
    live         bigint NOT NULL,
    redeemed     bigint NOT NULL,
    lane         bigint NOT NULL,
    processed_at timestamptz, -- when the log announced it
    campaign     text COLLATE "C" NOT NULL,

    CONSTRAINT expiry_own_key PRIMARY KEY (campaign, due_at),
    CONSTRAINT expiry_own_counts_are_not_negative CHECK (live >= 0 AND redeemed >= 0)
) WITH (fillfactor = 70);

CREATE INDEX expiry_own_pending ON scrip.expiry_own (due_at) WHERE processed_at IS NULL;
CREATE INDEX expiry_own_processed ON scrip.expiry_own (due_at) WHERE processed_at IS NOT NULL;

-- Those, and that of each campaign's end.
CREATE VIEW scrip.expiry_task AS
SELECT x.campaign, x.due_at, CASE WHEN x.processed_at IS NULL THEN x.live ELSE 0 END AS pending, x.redeemed,
       CASE WHEN x.processed_at IS NULL THEN 0 ELSE x.live END AS expired,
       CASE WHEN x.processed_at IS NULL THEN 'pending' ELSE 'processed' END COLLATE "C" AS state, x.processed_at, x.lane, x.live
FROM (
    SELECT t.campaign, t.due_at, t.processed_at, t.lane,
           t.live + CASE WHEN c.expires_at = t.due_at THEN c.inheriting_live ELSE 0 END AS live,
           t.redeemed + CASE WHEN c.expires_at = t.due_at THEN c.inheriting_redeemed ELSE 0 END AS redeemed
    FROM scrip.expiry_own t JOIN scrip.campaign c ON c.campaign = t.campaign
    UNION ALL
    SELECT c.campaign, c.expires_at, c.end_processed_at, c.lane, c.inheriting_live, c.inheriting_redeemed
    FROM scrip.campaign c
    WHERE c.expires_at IS NOT NULL AND NOT c.end_removed AND c.inheriting_live + c.inheriting_redeemed > 0
      AND NOT EXISTS (SELECT FROM scrip.expiry_own t WHERE t.campaign = c.campaign AND t.due_at = c.expires_at)
) x;

-- One row per announcement that coupons of a campaign fell, however many. A coupon fell with the first that reaches its
-- expiry; one without an expiry of its own, with one that has the campaign's end.
CREATE TABLE scrip.expiry_event (
    through      timestamptz NOT NULL,
    at           timestamptz NOT NULL,
    place        bigint NOT NULL,
    campaign_end timestamptz, -- the campaign's end as it was then, if it lies between the announcement before and this
    campaign     text COLLATE "C" NOT NULL,

    CONSTRAINT expiry_event_key PRIMARY KEY (campaign, through)
);

CREATE INDEX expiry_event_end ON scrip.expiry_event (campaign) WHERE campaign_end IS NOT NULL;

-- One row per subscription.
CREATE TABLE scrip.reminder (
    r              bigint NOT NULL, -- number of the subscription, rising within the campaign
    n              bigint,          -- coupon, for kind expires
    before_us      bigint NOT NULL,
    due_at         timestamptz,     -- NULL: the campaign names no opening or end to remind of, for now
    own_expires_at timestamptz,     -- expiry of the coupon's own, NULL if it falls with its campaign
    set_at         timestamptz NOT NULL,
    settled_at     timestamptz,     -- when it fired, was cancelled or dropped
    campaign       text COLLATE "C" NOT NULL,
    customer_id    text COLLATE "C" NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    state          text COLLATE "C" NOT NULL,
    set_place      bigint NOT NULL,
    settled_place  bigint,

    CONSTRAINT reminder_key PRIMARY KEY (campaign, r),
    CONSTRAINT reminder_state_is_known CHECK (state IN ('pending', 'fired', 'cancelled', 'dropped')),
    CONSTRAINT reminder_settled_has_time CHECK ((state = 'pending') = (settled_at IS NULL))
) WITH (fillfactor = 45); -- all of a campaign may fire at once: room for a HOT update of each row

-- None depends on state, so that a reminder that fires or is cancelled changes no index.
CREATE INDEX reminder_due ON scrip.reminder (campaign, kind, due_at, r);
CREATE INDEX reminder_coupon ON scrip.reminder (campaign, n) WHERE n IS NOT NULL;
CREATE INDEX reminder_customer ON scrip.reminder USING hash (customer_id);

-- Planning multiplies the selectivity of campaign with that of n, as if numbers did not depend on campaigns. So the number of
-- distinct n is given to the tables that are joined with coupon_claim: it is such that both together identify a coupon, see
-- projections/segments. Values of n that are common on both sides would stand against that, so coupon_claim has no statistics of it.
ALTER TABLE ONLY scrip.coupon_claim ALTER COLUMN n SET STATISTICS 0, ALTER COLUMN campaign SET STATISTICS 30,
    ALTER COLUMN customer_id SET STATISTICS 30; -- of all segments; look-ups are planned with them, which takes longer with more
ALTER TABLE scrip.coupon_state ALTER COLUMN n SET STATISTICS 1;
ALTER TABLE scrip.redemption_row ALTER COLUMN n SET STATISTICS 1;
ALTER TABLE scrip.reminder ALTER COLUMN n SET STATISTICS 1;

-- Counts by UTC day, by the time of the log.

-- attribute '' is the campaign's total, of days before campaign.stats_day; every other attribute is one that claims carried.
CREATE TABLE scrip.day_stats (
    day         timestamptz NOT NULL, -- 00:00 UTC
    claimed     bigint NOT NULL,
    redeemed    bigint NOT NULL,
    rolled_back bigint NOT NULL,
    voided      bigint NOT NULL,
    campaign    text COLLATE "C" NOT NULL,
    attribute   text COLLATE "C" NOT NULL,
    value       text COLLATE "C" NOT NULL,

    CONSTRAINT day_stats_key PRIMARY KEY (campaign, day, attribute, value)
) WITH (fillfactor = 70);

CREATE VIEW scrip.campaign_stats AS
SELECT campaign, day, attribute, value, claimed, redeemed, rolled_back, voided FROM scrip.day_stats
UNION ALL
SELECT campaign, stats_day, '', '', day_claimed, day_redeemed, day_rolled_back, day_voided FROM scrip.campaign WHERE stats_day IS NOT NULL;

-- Commands answered "no", by reason. campaign is '' where the command named none. The lane is part of the key because
-- a command may name a campaign that lives elsewhere, and lanes are projected in parallel.
CREATE TABLE scrip.refusal_stats (
    day      timestamptz NOT NULL, -- 00:00 UTC
    refused  bigint NOT NULL,
    lane     bigint NOT NULL,
    campaign text COLLATE "C" NOT NULL,
    reason   text COLLATE "C" NOT NULL,

    CONSTRAINT refusal_stats_key PRIMARY KEY (lane, campaign, day, reason)
) WITH (fillfactor = 70);

CREATE INDEX refusal_stats_campaign ON scrip.refusal_stats (campaign, day);

-- How far the tables are, and what could not be applied.

-- The tables equal the fold of the log up to here, lane by lane. A place in the log is (log, sequence, digest): the
-- number alone would not tell a log that lost its tail and was written on from the one that was read.
CREATE TABLE scrip.checkpoint (
    projection text COLLATE "C" NOT NULL,
    lane       bigint NOT NULL,
    sequence   bigint NOT NULL, -- last event message applied, 0 = none
    updated_at timestamptz NOT NULL,
    log        text COLLATE "C" NOT NULL,
    digest     text COLLATE "C" NOT NULL, -- of that message
    log_time   timestamptz,               -- the lane's clock at that message
    -- When the tables were last exchanged by scrip (rebuild, undo), or another projector began, in microseconds since 1970; 0 = never.
    -- A projector that loaded its state under another generation moves no checkpoint any more, and begins again.
    generation bigint NOT NULL DEFAULT 0,

    CONSTRAINT checkpoint_key PRIMARY KEY (projection, lane),
    CONSTRAINT checkpoint_is_not_negative CHECK (sequence >= 0)
) WITH (fillfactor = 10); -- one hot row per lane: a page each, all updates HOT

-- What was parked. stream, sequence and line say where it stands; event_sequence and event_line which event (or
-- unreadable line) of the lane put it here. A command stream that was rebased may use its numbers again, so the key is
-- the event.
CREATE TABLE scrip.dead_letter (
    lane           bigint NOT NULL,
    sequence       bigint NOT NULL,
    line           bigint NOT NULL, -- from 1; 0 = the whole message
    event_sequence bigint NOT NULL,
    event_line     bigint NOT NULL,
    at             timestamptz NOT NULL,
    stream         text COLLATE "C" NOT NULL,
    reason         text NOT NULL,
    payload        text NOT NULL, -- capped

    CONSTRAINT dead_letter_key PRIMARY KEY (lane, event_sequence, event_line)
);

-- In the order of lists, which go on after any of them.
CREATE INDEX dead_letter_at ON scrip.dead_letter (at, lane, event_sequence, event_line);
