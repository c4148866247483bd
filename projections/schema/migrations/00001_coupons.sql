-- Campaigns, coupons and redemptions.
--
-- Text that is compared is COLLATE "C": equal bytes are equal, order does not depend on the operating system.
-- No foreign keys: rows are only ever written by the projector, in the order of the log, and a check per row would cost
-- more than it finds. What must hold is stated as named CHECK constraints; a valid log cannot violate one.

-- +goose Up
CREATE TABLE scrip.campaign (
    campaign        text COLLATE "C" NOT NULL,
    status          text COLLATE "C" NOT NULL,
    category        text COLLATE "C",
    codes           bigint NOT NULL GENERATED ALWAYS AS (generated_codes + imported_codes) STORED,
    claimed         bigint NOT NULL,
    redeemed        bigint NOT NULL,
    expired         bigint NOT NULL,
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
    -- Coupons without an expiry of their own: when the campaign's end moves, these counts move with it.
    inheriting_live     bigint NOT NULL,
    inheriting_redeemed bigint NOT NULL,
    stats_day timestamptz, -- of the newest total in campaign_stats: that row is known to be there

    CONSTRAINT campaign_key PRIMARY KEY (campaign),
    CONSTRAINT campaign_status_is_known CHECK (status IN ('active', 'paused', 'ended')),
    CONSTRAINT campaign_redeems_at_least_once CHECK (max_redemptions >= 1),
    CONSTRAINT campaign_counts_are_not_negative CHECK (claimed >= 0 AND redeemed >= 0 AND expired >= 0 AND voided >= 0
        AND inheriting_live >= 0 AND inheriting_redeemed >= 0),
    CONSTRAINT campaign_counts_are_of_claimed CHECK (redeemed + expired + voided <= claimed)
) WITH (fillfactor = 50); -- updated with every batch: room for HOT updates

-- One row per claimed coupon. Its status is not stored: see view coupon.
CREATE TABLE scrip.coupon_row (
    n              bigint NOT NULL,
    claimed_at     timestamptz NOT NULL,
    redeemed_count bigint NOT NULL,
    expires_at     timestamptz, -- its own; NULL = the campaign's
    redeemed_at    timestamptz,
    voided_at      timestamptz,
    campaign       text COLLATE "C" NOT NULL,
    code           text COLLATE "C" NOT NULL,
    customer_id    text COLLATE "C" NOT NULL,
    attributes     text, -- JSON as given
    void_reason    text,

    CONSTRAINT coupon_row_key PRIMARY KEY (campaign, n),
    CONSTRAINT coupon_row_counts_from_one CHECK (n >= 1),
    CONSTRAINT coupon_row_redeemed_has_time CHECK ((redeemed_count > 0) = (redeemed_at IS NOT NULL))
) WITH (fillfactor = 85);

-- Hash indexes: half the cost of a btree on random text, and no limit on its length.
CREATE INDEX coupon_row_code ON scrip.coupon_row USING hash (code);
CREATE INDEX coupon_row_customer ON scrip.coupon_row USING hash (customer_id);

-- The status of a coupon follows from its row and its campaign. Ten million coupons expire by one update of
-- campaign.expired_through.
CREATE VIEW scrip.coupon AS
SELECT r.campaign, r.n, r.code, r.customer_id,
       CASE WHEN r.voided_at IS NOT NULL THEN 'voided'
            WHEN r.redeemed_count >= c.max_redemptions THEN 'redeemed'
            WHEN coalesce(r.expires_at, c.expires_at) <= c.expired_through THEN 'expired'
            ELSE 'claimed' END AS status,
       r.claimed_at,
       coalesce(r.expires_at, c.expires_at) AS expires_at,
       r.redeemed_count, r.redeemed_at, r.voided_at, r.void_reason, r.attributes
FROM scrip.coupon_row r
JOIN scrip.campaign c ON c.campaign = r.campaign;

-- One row per redemption, named by its place in the log: one order may redeem, be rolled back and redeem again.
CREATE TABLE scrip.redemption (
    n              bigint NOT NULL,
    redeemed_at    timestamptz NOT NULL,
    rolled_back_at timestamptz,
    sequence       bigint NOT NULL, -- of the event message
    line           bigint NOT NULL, -- of the event in it, from 1
    campaign       text COLLATE "C" NOT NULL,
    code           text COLLATE "C" NOT NULL,
    customer_id    text COLLATE "C" NOT NULL,
    order_id       text COLLATE "C" NOT NULL,

    CONSTRAINT redemption_key PRIMARY KEY (campaign, n, sequence, line)
);

-- +goose Down
DROP VIEW scrip.coupon;
DROP TABLE scrip.redemption, scrip.coupon_row, scrip.campaign;
