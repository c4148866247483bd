-- Counts by UTC day, by the time of the log.

-- +goose Up

-- attribute '' is the campaign's total; every other attribute is one that claims carried.
CREATE TABLE scrip.campaign_stats (
    day         timestamptz NOT NULL, -- 00:00 UTC
    claimed     bigint NOT NULL,
    redeemed    bigint NOT NULL,
    rolled_back bigint NOT NULL,
    voided      bigint NOT NULL,
    campaign    text COLLATE "C" NOT NULL,
    attribute   text COLLATE "C" NOT NULL,
    value       text COLLATE "C" NOT NULL,

    CONSTRAINT campaign_stats_key PRIMARY KEY (campaign, day, attribute, value)
) WITH (fillfactor = 70);

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

-- +goose Down
DROP TABLE scrip.refusal_stats, scrip.campaign_stats;
