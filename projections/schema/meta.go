package schema

import (
	"context"
	"database/sql"
)

// What people did about dead letters is no fold of the log: it would be lost with tables that are dropped or filled anew,
// and would make their digests differ. So it lies beside the state of migrations and outlives the tables, and names the
// event that made the dead letter. at is the dead letter's: a log that lost its tail may use places again.
const deadLettersSQL = `
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
)`

func makeMeta(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, deadLettersSQL)
	return err
}
