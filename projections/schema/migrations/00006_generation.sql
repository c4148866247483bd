-- Tables may be exchanged under a projector that keeps working.

-- +goose Up
-- When the tables were last exchanged or mended by hand of scrip (rebuild, undo, repair), in microseconds since 1970; 0
-- = never. A projector that loaded its state under another generation moves no checkpoint any more, and begins again.
ALTER TABLE scrip.checkpoint ADD COLUMN generation bigint NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE scrip.checkpoint DROP COLUMN generation;
