package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// $1..$5 = log, lane, event, time   $6 = state   $7 = note
const settleSQL = `
INSERT INTO scrip_meta.dead_letter AS h (log, lane, event_sequence, event_line, at, settled_at, state, note)
VALUES ($1, $2, $3, $4, $5, clock_timestamp(), $6, $7)
ON CONFLICT (log, lane, event_sequence, event_line, at) DO UPDATE SET state = excluded.state,
    settled_at = CASE WHEN excluded.state = 'discarded' AND excluded.note = '' THEN h.settled_at ELSE excluded.settled_at END,
    note = CASE WHEN excluded.state = 'discarded' AND excluded.note = '' THEN h.note ELSE excluded.note END
WHERE excluded.state = 'retried' OR h.state = 'discarded'`

// ErrRetried is the kind of the error for discarding or reopening a dead letter that was sent again: the retry took
// effect and cannot be undone.
var ErrRetried = errors.New("it was retried, which cannot be undone")

// Settle records the state of a dead letter: Retried or Discarded, with an optional note. Discarding again without a
// note keeps the first one and its time. ErrRetried for discarding a retried one; a discarded one may be retried.
func (s *Store) Settle(ctx context.Context, l *Letter, state State, note string) error {
	if l.log == "" {
		return fmt.Errorf("dead letter %s: the read tables have no checkpoint with the log's UUID; is `scrip serve` running?", l.ID)
	}
	tag, err := s.db.Exec(ctx, settleSQL, l.log, l.Lane, int64(l.EventSequence), int64(l.EventLine), l.At, string(state), note)
	if err == nil && tag.RowsAffected() == 0 {
		return fmt.Errorf("%s: %w", l.ID, ErrRetried)
	}
	return explain("recording that dead letter "+l.ID.String()+" is "+string(state), err)
}

const reopenSQL = `
DELETE FROM scrip_meta.dead_letter WHERE log = $1 AND lane = $2 AND event_sequence = $3 AND event_line = $4 AND at = $5 AND state = 'discarded'`

// Reopen undoes the discarding of a dead letter. It does not change an open one; ErrRetried for a retried one.
func (s *Store) Reopen(ctx context.Context, l *Letter) error {
	tag, err := s.db.Exec(ctx, reopenSQL, l.log, l.Lane, int64(l.EventSequence), int64(l.EventLine), l.At)
	if err == nil && tag.RowsAffected() == 0 && l.State == Retried {
		return fmt.Errorf("%s: %w", l.ID, ErrRetried)
	}
	return explain("opening dead letter "+l.ID.String()+" again", err)
}

// $5 = note
const discardAllSQL = `
INSERT INTO scrip_meta.dead_letter (log, lane, event_sequence, event_line, at, settled_at, state, note)
SELECT c.log, d.lane, d.event_sequence, d.event_line, d.at, clock_timestamp(), 'discarded', $5` + letters + wanted + ` AND c.log IS NOT NULL
ON CONFLICT (log, lane, event_sequence, event_line, at) DO NOTHING`

// DiscardAll discards the open dead letters that a filter selects, ignoring its Limit, and returns their number.
func (s *Store) DiscardAll(ctx context.Context, f Filter, note string) (int64, error) {
	f.State = Open
	tag, err := s.db.Exec(ctx, discardAllSQL, append(f.args(), note)...)
	return tag.RowsAffected(), explain("discarding dead letters", err)
}

// explain adds to an error of PostgreSQL what to do; nil for nil.
func explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "42501":
			return fmt.Errorf("%s: %w; the role needs to read schema scrip, and to write the state of dead letters: "+
				"GRANT USAGE ON SCHEMA scrip, scrip_meta TO …; GRANT SELECT ON scrip.dead_letter, scrip.checkpoint TO …; "+
				"GRANT SELECT, INSERT, UPDATE, DELETE ON scrip_meta.dead_letter TO …", doing, err)
		case "42P01", "3F000":
			return fmt.Errorf("%s: %w; the read tables do not exist, or an older scrip created them: start `scrip serve`, which creates or migrates them", doing, err)
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}
