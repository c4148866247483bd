-- Of an attribute at most 1,000 values a day have rows of their own, and of a claim at most 8 attributes count.

-- +goose Up

-- Which values come first only the log shows. Tables that hold more are emptied, and with them the checkpoints, so the
-- projector fills them again.
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM scrip.campaign_stats WHERE attribute <> '' GROUP BY campaign, day, attribute HAVING count(*) > 1000)
       OR EXISTS (SELECT 1 FROM scrip.campaign_stats WHERE attribute <> '' GROUP BY campaign, day HAVING count(DISTINCT attribute) > 8) THEN
        TRUNCATE scrip.campaign, scrip.coupon_row, scrip.coupon_event, scrip.redemption, scrip.expiry_task, scrip.expiry_event,
            scrip.reminder, scrip.campaign_stats, scrip.refusal_stats, scrip.dead_letter, scrip.checkpoint;
    END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
SELECT 1;
