// Package deadletter shows what could not be understood or applied, and keeps what people did about it.
//
//	command.rejected ──> scrip.dead_letter <── an event line the tables refuse
//	                            │
//	                            ├──> open, until somebody acts ──> scrip_meta.dead_letter: retried, discarded
//	                            └──> the line itself, in full, from the stream it stands in
//
// Table scrip.dead_letter is a fold of the log like all of schema scrip: dropped and filled anew, its rows are the same.
// What people did is none, so it lies outside, by the place of the event that made the dead letter.
//
// Owner: nobody; a Store keeps nothing. A crash between sending a command line again and noting so leaves the dead letter
// open: it is sent again under the same id, and answered as a repeat.
package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// State is what became of a dead letter.
type State string

// The states. Open ones wait for somebody.
const (
	Open      State = "open"
	Retried   State = "retried"   // sent again, and accepted
	Discarded State = "discarded" // somebody saw that nothing is to be done
)

// Letter is one dead letter.
type Letter struct {
	ID ID `json:"id"`
	// Stream, Lane, Sequence and Line are where the line stands that nobody could make sense of. Line counts from 1; 0 is
	// the whole message.
	Stream   string `json:"stream"`
	Lane     int    `json:"lane"`
	Sequence uint64 `json:"sequence"`
	Line     uint32 `json:"line"`
	Reason   string `json:"reason"`
	// Payload is the line, or the beginning of a long one.
	Payload string    `json:"payload"`
	At      time.Time `json:"at"`
	// EventSequence and EventLine are where the lane's event stream tells of it; of an event, where that itself stands.
	EventSequence uint64     `json:"event_sequence"`
	EventLine     uint32     `json:"event_line"`
	State         State      `json:"state"`
	SettledAt     *time.Time `json:"settled_at,omitempty"`
	Note          string     `json:"note,omitempty"` // of whoever settled it

	log string
}

// IsEvent says whether it is an event the tables could not apply, rather than a command line that was refused.
func (l *Letter) IsEvent() bool { return strings.HasPrefix(l.Stream, topology.EvtStreamPrefix) }

// Querier is what a pool and a connection have in common.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Store reads and settles dead letters in one database.
type Store struct{ db Querier }

// New returns a Store. It asks nobody.
func New(db Querier) *Store { return &Store{db: db} }

const (
	// MostListed is how many dead letters a page has at most, DefaultListed how many when nobody says otherwise.
	MostListed    = 1000
	DefaultListed = 100
	// MostCounted bounds what Open counts: a producer gone mad leaves millions.
	MostCounted = 100_000
)

// ErrNotFound is the kind of the error for an id that no dead letter has.
var ErrNotFound = errors.New("there is no such dead letter")

// letters are all of them with what became of them.
const letters = `
FROM scrip.dead_letter d LEFT JOIN scrip.checkpoint c ON c.projection = 'tables' AND c.lane = d.lane
LEFT JOIN scrip_meta.dead_letter h ON h.log = c.log AND h.lane = d.lane AND h.event_sequence = d.event_sequence AND h.event_line = d.event_line AND h.at = d.at`

const columns = `SELECT d.stream, d.lane, d.sequence, d.line, d.reason, d.payload, d.at, d.event_sequence, d.event_line,
    coalesce(h.state, 'open'), h.settled_at, coalesce(h.note, ''), coalesce(c.log, '')` + letters

// Filter says which dead letters are wanted. The zero value is all of them, of any state.
type Filter struct {
	// Stream is "commands", "events" or the name of a stream; "" = all.
	Stream string
	// Lane is a lane's number; nil = all.
	Lane *int
	// Since leaves out older ones. Zero = none.
	Since time.Time
	// State leaves out those of another. "" = none.
	State State
	// Limit is how many at most, up to MostListed; 0 = DefaultListed.
	Limit int
	// Before is what the page before gave as older; "" = the newest.
	Before string
}

// The streams of a Filter besides their names.
const (
	Commands = "commands"
	Events   = "events"
)

// A name is compared whole: SCRIP_CMD_1 is not SCRIP_CMD_10. A prefix ends with _, as no name does.
//
// $1 = stream, or prefix of its name, or empty   $2 = lane or NULL   $3 = since or NULL   $4 = state or empty
const wanted = ` WHERE (d.stream = $1 OR $1 = '' OR right($1, 1) = '_' AND starts_with(d.stream, $1)) AND ($2::bigint IS NULL OR d.lane = $2) AND ($3::timestamptz IS NULL OR d.at >= $3)
  AND ($4::text = '' OR coalesce(h.state, 'open') = $4)`

// $5..$8 = where the page before ended: time, lane, event   $9 = how many
const listSQL = columns + wanted + `
  AND d.at <= $5::timestamptz AND (d.at, d.lane, d.event_sequence, d.event_line) < ($5::timestamptz, $6::bigint, $7::bigint, $8::bigint)
ORDER BY d.at DESC, d.lane DESC, d.event_sequence DESC, d.event_line DESC LIMIT $9`

func (f *Filter) args() []any {
	stream := f.Stream
	switch stream {
	case Commands:
		stream = topology.CmdStreamPrefix
	case Events:
		stream = topology.EvtStreamPrefix
	}
	return []any{stream, f.Lane, pgtype.Timestamptz{Time: f.Since, Valid: !f.Since.IsZero()}, string(f.State)}
}

// List gives dead letters, newest first. older is empty on the last page.
func (s *Store) List(ctx context.Context, f Filter) (list []Letter, older string, err error) {
	limit := f.Limit
	if limit == 0 {
		limit = DefaultListed
	}
	if limit < 0 || limit > MostListed {
		return nil, "", fmt.Errorf("limit %d: give 1 to %d", f.Limit, MostListed)
	}
	from, err := parseCursor(f.Before)
	if err != nil {
		return nil, "", err
	}
	list, err = s.read(ctx, "listing dead letters", listSQL, append(f.args(), from.at, from.lane, from.sequence, from.line, limit+1)...)
	if err != nil {
		return nil, "", err
	}
	if len(list) > limit {
		list = list[:limit]
		last := &list[limit-1]
		older = fmt.Sprintf("%d.%d.%d.%d", last.At.UnixMicro(), last.Lane, last.EventSequence, last.EventLine)
	}
	return list, older, nil
}

type cursor struct {
	at                   pgtype.Timestamptz
	lane, sequence, line int64
}

func parseCursor(s string) (c cursor, err error) {
	c.at = pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	if s == "" {
		return c, nil
	}
	parts := strings.Split(s, ".")
	var numbers [4]int64
	for i, p := range parts {
		n, err := strconv.ParseInt(p, 10, 64)
		if err != nil || len(parts) != len(numbers) || n < 0 || i == 0 && n > 1<<57 {
			return c, fmt.Errorf("before %q: must be what the page before ended with", s)
		}
		numbers[i] = n
	}
	c.at = pgtype.Timestamptz{Time: time.UnixMicro(numbers[0]).UTC(), Valid: true}
	c.lane, c.sequence, c.line = numbers[1], numbers[2], numbers[3]
	return c, nil
}

// $1..$3 = stream, sequence, line   $4 = lane, which is the beginning of the key   $5, $6 = the event, 0 = any
const findSQL = columns + `
WHERE d.stream = $1 AND d.sequence = $2 AND d.line = $3 AND d.lane = $4 AND ($5::bigint = 0 OR (d.event_sequence, d.event_line) = ($5::bigint, $6::bigint))
ORDER BY d.event_sequence, d.event_line LIMIT 10`

// Find gives the dead letter of an id. ErrNotFound if there is none.
func (s *Store) Find(ctx context.Context, id ID) (Letter, error) {
	list, err := s.read(ctx, "looking for dead letter "+id.String(), findSQL,
		id.Stream, int64(id.Sequence), int64(id.Line), id.lane, int64(id.EventSequence), int64(id.EventLine))
	switch {
	case err != nil:
		return Letter{}, err
	case len(list) == 0:
		return Letter{}, fmt.Errorf("%s: %w; `scrip deadletter list --state all` lists them, and the read tables may be some moments behind", id, ErrNotFound)
	case len(list) > 1:
		var all []string
		for _, l := range list {
			exact := l.ID
			exact.EventSequence, exact.EventLine = l.EventSequence, l.EventLine
			all = append(all, exact.String())
		}
		return Letter{}, fmt.Errorf("several dead letters are called %s, because the command stream began anew; say which: %s", id, strings.Join(all, ", "))
	}
	return list[0], nil
}

func (s *Store) read(ctx context.Context, doing, sql string, args ...any) ([]Letter, error) {
	rows, err := s.db.Query(ctx, sql, args...)
	if err != nil {
		return nil, explain(doing, err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Letter, err error) {
		var settled pgtype.Timestamptz
		err = row.Scan(&l.Stream, &l.Lane, &l.Sequence, &l.Line, &l.Reason, &l.Payload, &l.At, &l.EventSequence, &l.EventLine,
			&l.State, &settled, &l.Note, &l.log)
		l.At = l.At.UTC()
		if settled.Valid {
			at := settled.Time.UTC()
			l.SettledAt = &at
		}
		l.ID = ID{Stream: l.Stream, Sequence: l.Sequence, Line: l.Line, lane: l.Lane}
		return l, err
	})
	if err != nil {
		return nil, explain(doing, err)
	}
	return list, nil
}

// Counts is how many dead letters are open. More says that there are more than MostCounted, which was all that was
// counted.
type Counts struct {
	Commands int  `json:"commands"`
	Events   int  `json:"events"`
	More     bool `json:"more,omitempty"`
}

// $1 = the most
const countSQL = `
SELECT count(*) FILTER (WHERE NOT event), count(*) FILTER (WHERE event)
FROM (SELECT starts_with(d.stream, '` + topology.EvtStreamPrefix + `') AS event` + letters + ` WHERE h.log IS NULL LIMIT $1) x`

// Open counts the open ones, by kind.
func (s *Store) Open(ctx context.Context) (c Counts, err error) {
	rows, err := s.db.Query(ctx, countSQL, MostCounted+1)
	if err != nil {
		return c, explain("counting dead letters", err)
	}
	_, err = pgx.ForEachRow(rows, []any{&c.Commands, &c.Events}, func() error { return nil })
	if err != nil {
		return c, explain("counting dead letters", err)
	}
	c.More = c.Commands+c.Events > MostCounted
	return c, nil
}
