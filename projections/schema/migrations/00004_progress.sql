-- How far the tables are, and what could not be applied.

-- +goose Up

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

CREATE INDEX dead_letter_at ON scrip.dead_letter (at);

-- +goose Down
DROP TABLE scrip.dead_letter, scrip.checkpoint;
