-- What happened to a coupon: each event with its place in the log.
--
-- A place is sequence * 1048576 + line of an event in its campaign's lane: one number, so that ten million coupons carry
-- eight bytes each, and later in the lane is greater. A message has fewer lines than that by far.

-- +goose Up

-- The tables do not hold the places of what they were filled from; the log does. They are emptied, and with them the
-- checkpoints, so the projector fills them anew.
TRUNCATE scrip.campaign, scrip.coupon_row, scrip.redemption, scrip.expiry_task, scrip.reminder, scrip.campaign_stats,
    scrip.refusal_stats, scrip.dead_letter, scrip.checkpoint;

ALTER TABLE scrip.coupon_row ADD COLUMN claimed_place bigint NOT NULL;
ALTER TABLE scrip.reminder ADD COLUMN set_place bigint NOT NULL, ADD COLUMN settled_place bigint;

-- One row per event that happened to a coupon besides its claim and its redemptions.
CREATE TABLE scrip.coupon_event (
    n          bigint NOT NULL,
    place      bigint NOT NULL,
    at         timestamptz NOT NULL,
    expires_at timestamptz,          -- extended: until when
    own_before timestamptz,          -- extended: the expiry of its own the coupon had before; NULL = the campaign's
    campaign   text COLLATE "C" NOT NULL,
    what       text COLLATE "C" NOT NULL,
    order_id   text COLLATE "C",     -- rolled back
    reason     text,                 -- voided

    CONSTRAINT coupon_event_key PRIMARY KEY (campaign, n, place),
    CONSTRAINT coupon_event_is_known CHECK (what IN ('rolled_back', 'voided', 'extended')),
    CONSTRAINT coupon_event_rollback_has_order CHECK ((what = 'rolled_back') = (order_id IS NOT NULL)),
    CONSTRAINT coupon_event_extension_has_expiry CHECK ((what = 'extended') = (expires_at IS NOT NULL))
);

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

-- +goose Down
DROP TABLE scrip.expiry_event, scrip.coupon_event;
ALTER TABLE scrip.reminder DROP COLUMN set_place, DROP COLUMN settled_place;
ALTER TABLE scrip.coupon_row DROP COLUMN claimed_place;
