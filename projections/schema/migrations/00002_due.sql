-- What falls due: expiries and reminders.

-- +goose Up

-- One row per campaign and instant at which coupons of it fall. Every claimed coupon that expires at due_at and is not
-- void counts in exactly one of two stored numbers: live or redeemed. Whether live ones show as pending or as expired
-- follows from the state alone, so that announcing an expiry touches one row here, however many coupons fall.
-- A row in which nothing counts any more is removed.
CREATE TABLE scrip.expiry_task (
    due_at       timestamptz NOT NULL,
    live         bigint NOT NULL,
    pending      bigint NOT NULL GENERATED ALWAYS AS (CASE WHEN state = 'pending' THEN live ELSE 0 END) STORED,
    redeemed     bigint NOT NULL,
    expired      bigint NOT NULL GENERATED ALWAYS AS (CASE WHEN state = 'processed' THEN live ELSE 0 END) STORED,
    lane         bigint NOT NULL,
    processed_at timestamptz, -- when the log announced it
    campaign     text COLLATE "C" NOT NULL,
    state        text COLLATE "C" NOT NULL,

    CONSTRAINT expiry_task_key PRIMARY KEY (campaign, due_at),
    CONSTRAINT expiry_task_state_is_known CHECK (state IN ('pending', 'processed')),
    CONSTRAINT expiry_task_processed_has_time CHECK ((state = 'processed') = (processed_at IS NOT NULL)),
    CONSTRAINT expiry_task_counts_are_not_negative CHECK (live >= 0 AND redeemed >= 0)
) WITH (fillfactor = 70);

CREATE INDEX expiry_task_pending ON scrip.expiry_task (due_at) WHERE state = 'pending';
CREATE INDEX expiry_task_state ON scrip.expiry_task (state, due_at);

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

    CONSTRAINT reminder_key PRIMARY KEY (campaign, r),
    CONSTRAINT reminder_state_is_known CHECK (state IN ('pending', 'fired', 'cancelled', 'dropped')),
    CONSTRAINT reminder_settled_has_time CHECK ((state = 'pending') = (settled_at IS NULL))
) WITH (fillfactor = 45); -- all of a campaign may fire at once: room for a HOT update of each row

-- None depends on state, so that a reminder that fires or is cancelled changes no index.
CREATE INDEX reminder_due ON scrip.reminder (campaign, kind, due_at, r);
CREATE INDEX reminder_coupon ON scrip.reminder (campaign, n) WHERE n IS NOT NULL;
CREATE INDEX reminder_customer ON scrip.reminder USING hash (customer_id);

-- +goose Down
DROP TABLE scrip.reminder, scrip.expiry_task;
