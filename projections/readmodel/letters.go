package readmodel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// LetterState is the state of a dead letter.
type LetterState string

// The states. Open ones wait for an operator.
const (
	Open      LetterState = "open"
	Retried   LetterState = "retried"   // published again, and accepted
	Discarded LetterState = "discarded" // an operator decided that nothing is to be done
)

// LetterStates are they.
var LetterStates = []LetterState{Open, Retried, Discarded}

// Letter is one dead letter.
type Letter struct {
	ID LetterID `json:"id"`
	// Stream, Lane, Sequence and Line are the position of the line that could not be parsed or applied. Line counts
	// from 1; 0 is the whole message.
	Stream   string `json:"stream"`
	Lane     int    `json:"lane"`
	Sequence uint64 `json:"sequence"`
	Line     uint32 `json:"line"`
	Reason   string `json:"reason"`
	// Payload is the line, or the first part of a long one.
	Payload string    `json:"payload"`
	At      time.Time `json:"at"`
	// EventSequence and EventLine are the position of the event that records it; of an event line, its own position.
	EventSequence uint64      `json:"event_sequence"`
	EventLine     uint32      `json:"event_line"`
	State         LetterState `json:"state"`
	SettledAt     *time.Time  `json:"settled_at,omitempty"`
	Note          string      `json:"note,omitempty"` // of the operator who settled it

	log string
}

// IsEvent reports whether it is an event that the tables could not apply, rather than a refused command line.
func (l *Letter) IsEvent() bool { return strings.HasPrefix(l.Stream, topology.EvtStreamPrefix) }

// Querier is the common interface of a pool and a connection.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// Letters reads and settles dead letters in one database.
type Letters struct{ db Querier }

// New returns a Letters. It sends no query.
func NewLetters(db Querier) *Letters { return &Letters{db: db} }

const (
	// MostLetters is the maximum of dead letters per page, DefaultLetters the default.
	MostLetters    = 1000
	DefaultLetters = 100
	// MostCounted bounds what Open counts: a faulty producer can leave millions.
	MostCounted = 100_000
)

// The kinds of errors for an id without a dead letter, and for one that several have.
var (
	ErrNoLetter    = errors.New("there is no such dead letter")
	ErrManyLetters = errors.New("several dead letters have this id, because the command stream was created again")
)

// lettersSQL are all dead letters with their states, and partSQL those of a part, each with its own.
const (
	lettersSQL = `
FROM scrip_tables.dead_letter d LEFT JOIN scrip_tables.checkpoint c ON c.projection = 'tables' AND c.lane = d.lane
LEFT JOIN scrip_meta.dead_letter h ON ` + stateOfIt
	partSQL = `
FROM (SELECT d.*` + afterPlace + `  AND (d.at, d.lane, d.event_sequence, d.event_line) >= ($10::timestamptz, $11::bigint, $12::bigint, $13::bigint)` + oneAfterTheOther + `OFFSET 0) d LEFT JOIN scrip_tables.checkpoint c ON c.projection = 'tables' AND c.lane = d.lane
LEFT JOIN LATERAL (SELECT * FROM scrip_meta.dead_letter h WHERE ` + stateOfIt + ` OFFSET 0) h ON true`
	stateOfIt = `h.log = c.log AND h.lane = d.lane AND h.event_sequence = d.event_sequence AND h.event_line = d.event_line AND h.at = d.at`

	// Dead letters, newest first, after the end of the page before.
	//
	// $3 = since   $6..$9 = that end: time, lane, event   $10..$13 = the last row of the part
	afterPlace = ` FROM scrip_tables.dead_letter d WHERE ($3::timestamptz IS NULL OR d.at >= $3)
  AND (d.at, d.lane, d.event_sequence, d.event_line) < ($6::timestamptz, $7::bigint, $8::bigint, $9::bigint)
`
	oneAfterTheOther = ` ORDER BY d.at DESC, d.lane DESC, d.event_sequence DESC, d.event_line DESC `
)

const letterValues = `SELECT d.stream, d.lane, d.sequence, d.line, d.reason, d.payload, d.at, d.event_sequence, d.event_line,
    coalesce(h.state, 'open'), h.settled_at, coalesce(h.note, ''), coalesce(c.log, '')`

const letterColumns = letterValues + lettersSQL

// LetterFilter selects dead letters. The zero value selects all of them, in any state.
type LetterFilter struct {
	// Stream is "commands", "events" or the name of a stream; "" = all.
	Stream string
	// Lane is a lane's number; nil = all.
	Lane *int
	// Since excludes older ones. Zero = none.
	Since time.Time
	// Cause excludes those whose reason, without numbers, is another one. "" = none.
	Cause string
	// State excludes those in another state. "" = none.
	State LetterState
	// Limit is the page size, up to MostLetters; 0 = DefaultLetters.
	Limit int
	// Before is the previous page's result older; "" = the newest.
	Before string
	// Masked leaves out the lines, which may hold codes. Reasons have nothing of them.
	Masked bool
}

// Check returns an error if a field of the filter has no meaning. It names the field.
func (f *LetterFilter) Check() error {
	number := strings.TrimPrefix(strings.TrimPrefix(f.Stream, topology.CmdStreamPrefix), topology.EvtStreamPrefix)
	_, err := strconv.ParseUint(number, 10, 16)
	switch {
	case f.Stream != "" && f.Stream != OfCommands && f.Stream != OfEvents && (err != nil || number == f.Stream):
		return fmt.Errorf("stream %q: must be %s, %s, or the name of a stream such as %s", f.Stream, OfCommands, OfEvents, topology.CmdStream(0))
	case f.Limit < 0 || f.Limit > MostLetters:
		return fmt.Errorf("limit %d: give 1 to %d", f.Limit, MostLetters)
	case f.State != "" && f.State != Open && f.State != Retried && f.State != Discarded:
		return fmt.Errorf("state %q: give %s, %s or %s", f.State, Open, Retried, Discarded)
	}
	if _, ok := parseCursor(f.Before, 3); !ok {
		return fmt.Errorf("before %q: must be the end of the previous page", f.Before)
	}
	return nil
}

// The streams of a LetterFilter besides their names.
const (
	OfCommands = "commands"
	OfEvents   = "events"
)

// A name is compared completely: SCRIP_CMD_1 is not SCRIP_CMD_10. A prefix ends with _, which no name does.
//
// $1 = stream, or prefix of its name, or empty   $2 = lane or NULL   $3 = since or NULL   $4 = state or empty   $5 = cause or empty
const letterWanted = ` WHERE (d.stream = $1 OR $1 = '' OR right($1, 1) = '_' AND starts_with(d.stream, $1)) AND ($2::bigint IS NULL OR d.lane = $2) AND ($3::timestamptz IS NULL OR d.at >= $3)
  AND ($4::text = '' OR coalesce(h.state, 'open') = $4) AND ($5::text = '' OR ` + causeSQL + ` = $5)`

// causeSQL is what dead letters of one cause have in common.
const causeSQL = `regexp_replace(d.reason, '[0-9]+', '…', 'g')`

// $1..$13 as above   $14 = page size
const listSQL = letterValues + partSQL + letterWanted + `
ORDER BY d.at DESC, d.lane DESC, d.event_sequence DESC, d.event_line DESC LIMIT $14`

// The last row of a part, which is read before the part: new dead letters do not move it. $1 = rows of the part   $2 = since   $3..$6 = the end of the page before
var endOfLetters = strings.NewReplacer("$3", "$2", "$6", "$3", "$7", "$4", "$8", "$5", "$9", "$6").Replace(
	"SELECT d.at, d.lane, d.event_sequence, d.event_line" + afterPlace + oneAfterTheOther + "OFFSET $1 - 1 LIMIT 1")

func (f *LetterFilter) args() []any {
	stream := f.Stream
	switch stream {
	case OfCommands:
		stream = topology.CmdStreamPrefix
	case OfEvents:
		stream = topology.EvtStreamPrefix
	}
	return []any{stream, f.Lane, pgtype.Timestamptz{Time: f.Since, Valid: !f.Since.IsZero()}, string(f.State), f.Cause}
}

// List returns a part of the dead letters, newest first. older is where the next one begins, empty on the last one; looked is how far
// a part has looked that has fewer than the limit.
func (s *Letters) List(ctx context.Context, f LetterFilter) (list []Letter, older, looked string, err error) {
	if err := f.Check(); err != nil {
		return nil, "", "", err
	}
	limit := cmp.Or(f.Limit, DefaultLetters)
	after, _ := parseCursor(f.Before, 3)
	rows := partRows
	if f == (LetterFilter{Limit: f.Limit, Since: f.Since, Before: f.Before, Masked: f.Masked}) {
		rows = limit + 1
	} else if err := ops.Turn(ctx); err != nil {
		return nil, "", "", err
	}
	end, older, looked, err := s.endOf(ctx, &f, after, rows)
	if err != nil {
		return nil, "", "", err
	}
	list, err = read(ctx, s.db, readWait, scanLetter, listSQL, append(slices.Concat(f.args(), after, end), limit+1)...)
	if err != nil {
		return nil, "", "", explain("listing dead letters", err)
	}
	for i := range list {
		if f.Masked {
			list[i].Payload = ""
		}
	}
	list, more := cut(list, limit)
	if more {
		last := &list[limit-1]
		return list, cursor(last.At, int64(last.Lane), int64(last.EventSequence), int64(last.EventLine)), "", nil
	}
	return list, older, looked, nil
}

// endOf returns the last row of a part of so many rows, as arguments of a statement and as the end of a page; "" = it is the last part.
func (s *Letters) endOf(ctx context.Context, f *LetterFilter, after []any, rows int) (end []any, older, looked string, err error) {
	ends, err := read(ctx, s.db, readWait, func(row pgx.CollectableRow) (older string, err error) {
		var at time.Time
		var lane, sequence, line int64
		err = row.Scan(&at, &lane, &sequence, &line)
		looked = lookedAt(at)
		return cursor(at, lane, sequence, line), err
	}, endOfLetters, slices.Concat([]any{rows, f.args()[2]}, after)...)
	if err != nil {
		return nil, "", "", explain("listing dead letters", err)
	}
	if len(ends) == 0 {
		return []any{pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}, int64(0), int64(0), int64(0)}, "", "", nil
	}
	end, _ = parseCursor(ends[0], 3)
	return end, ends[0], looked, nil
}

// $1..$3 = stream, sequence, line   $4 = lane, with which the key starts   $5, $6 = the event, 0 = any
const findSQL = letterColumns + `
WHERE d.stream = $1 AND d.sequence = $2 AND d.line = $3 AND d.lane = $4 AND ($5::bigint = 0 OR (d.event_sequence, d.event_line) = ($5::bigint, $6::bigint))
ORDER BY d.event_sequence, d.event_line LIMIT 10`

// Find returns the dead letter of an id, ErrNoLetter if there is none, or ErrManyLetters.
func (s *Letters) Find(ctx context.Context, id LetterID) (Letter, error) {
	list, err := s.read(ctx, "looking for dead letter "+id.String(), findSQL,
		id.Stream, int64(id.Sequence), int64(id.Line), id.lane, int64(id.EventSequence), int64(id.EventLine))
	switch {
	case err != nil:
		return Letter{}, err
	case len(list) == 0:
		return Letter{}, fmt.Errorf("%s: %w; `scrip deadletter list --state all` lists them; the read tables may lag", id, ErrNoLetter)
	case len(list) > 1:
		var all []string
		for _, l := range list {
			exact := l.ID
			exact.EventSequence, exact.EventLine = l.EventSequence, l.EventLine
			all = append(all, exact.String())
		}
		return Letter{}, fmt.Errorf("%s: %w; give one of: %s", id, ErrManyLetters, strings.Join(all, ", "))
	}
	return list[0], nil
}

func (s *Letters) read(ctx context.Context, doing, sql string, args ...any) ([]Letter, error) {
	list, err := collect(ctx, s.db, scanLetter, sql, args...)
	if err != nil {
		return nil, explain(doing, err)
	}
	return list, nil
}

func scanLetter(row pgx.CollectableRow) (l Letter, err error) {
	var settled pgtype.Timestamptz
	err = row.Scan(&l.Stream, &l.Lane, &l.Sequence, &l.Line, &l.Reason, &l.Payload, &l.At, &l.EventSequence, &l.EventLine,
		&l.State, &settled, &l.Note, &l.log)
	l.At, l.SettledAt = l.At.UTC(), timeOf(settled)
	l.ID = LetterID{Stream: l.Stream, Sequence: l.Sequence, Line: l.Line, lane: l.Lane}
	return l, err
}

// LetterCounts is the number of open dead letters. More: there are more than MostCounted, at which counting ended.
type LetterCounts struct {
	Commands int  `json:"commands"`
	Events   int  `json:"events"`
	More     bool `json:"more,omitempty"`
}

// $1 = the most
const countSQL = `
SELECT count(*) FILTER (WHERE NOT event), count(*) FILTER (WHERE event)
FROM (SELECT starts_with(d.stream, '` + topology.EvtStreamPrefix + `') AS event` + lettersSQL + ` WHERE h.log IS NULL LIMIT $1) x`

// Open counts the open dead letters, by kind.
func (s *Letters) Open(ctx context.Context) (c LetterCounts, err error) {
	counts, err := collect(ctx, s.db, pgx.RowToStructByPos[struct{ Commands, Events int }], countSQL, MostCounted+1)
	if err != nil {
		return c, explain("counting dead letters", err)
	}
	c.Commands, c.Events = counts[0].Commands, counts[0].Events
	c.More = c.Commands+c.Events > MostCounted
	return c, nil
}

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
func (s *Letters) Settle(ctx context.Context, l *Letter, state LetterState, note string) error {
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
func (s *Letters) Reopen(ctx context.Context, l *Letter) error {
	tag, err := s.db.Exec(ctx, reopenSQL, l.log, l.Lane, int64(l.EventSequence), int64(l.EventLine), l.At)
	if err == nil && tag.RowsAffected() == 0 && l.State == Retried {
		return fmt.Errorf("%s: %w", l.ID, ErrRetried)
	}
	return explain("opening dead letter "+l.ID.String()+" again", err)
}

// $5 = note
const discardAllSQL = `
INSERT INTO scrip_meta.dead_letter (log, lane, event_sequence, event_line, at, settled_at, state, note)
SELECT c.log, d.lane, d.event_sequence, d.event_line, d.at, clock_timestamp(), 'discarded', $6` + lettersSQL + letterWanted + ` AND c.log IS NOT NULL
ON CONFLICT (log, lane, event_sequence, event_line, at) DO NOTHING`

// DiscardAll discards the open dead letters that a filter selects, ignoring its Limit, and returns their number.
func (s *Letters) DiscardAll(ctx context.Context, f LetterFilter, note string) (int64, error) {
	f.State = Open
	tag, err := s.db.Exec(ctx, discardAllSQL, append(f.args(), note)...)
	return tag.RowsAffected(), explain("discarding dead letters", err)
}

// groupsSQL groups the dead letters of a part.
const groupsSQL = `SELECT cause, kind, count(*), min(at), max(at), (array_agg(place ORDER BY at DESC))[1] FROM (
  SELECT ` + causeSQL + ` AS cause, CASE WHEN starts_with(d.stream, '` + topology.CmdStreamPrefix + `') THEN 'commands' ELSE 'events' END AS kind, d.at,
    d.stream || '.' || d.sequence || '.' || d.line AS place` + partSQL + letterWanted + `) g
GROUP BY cause, kind ORDER BY count(*) DESC, cause, kind`

// Groups groups the open dead letters of a part by cause, the largest group first. Next is where the next part begins.
func (s *Letters) Groups(ctx context.Context, before string) (page ops.Page[ops.LetterGroup], err error) {
	f := LetterFilter{State: Open, Before: before}
	after, ok := parseCursor(f.Before, 3)
	if !ok {
		return page, fmt.Errorf("%q is no place among dead letters", before)
	}
	if err := ops.Turn(ctx); err != nil {
		return page, err
	}
	end, older, looked, err := s.endOf(ctx, &f, after, partRows)
	if err != nil {
		return page, err
	}
	page.Next, page.Looked = older, looked
	page.Items, err = read(ctx, s.db, readWait, func(row pgx.CollectableRow) (g ops.LetterGroup, err error) {
		err = row.Scan(&g.Cause, &g.Stream, &g.Count, &g.Oldest, &g.Newest, &g.Example)
		g.Oldest, g.Newest = g.Oldest.UTC(), g.Newest.UTC()
		return g, err
	}, groupsSQL, slices.Concat(f.args(), after, end)...)
	if err != nil {
		return ops.Page[ops.LetterGroup]{}, explain("grouping dead letters", err)
	}
	return page, nil
}

// explain adds to an error of PostgreSQL what to do; nil for nil.
func explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	switch schema.State(err) {
	case "42501":
		return fmt.Errorf("%s: %w; the role needs to read schema scrip, and to write the state of dead letters: "+
			"GRANT USAGE ON SCHEMA scrip_tables, scrip_meta TO …; GRANT SELECT ON scrip_tables.dead_letter, scrip_tables.checkpoint TO …; "+
			"GRANT SELECT, INSERT, UPDATE, DELETE ON scrip_meta.dead_letter TO …", doing, err)
	case "42P01", "3F000":
		return fmt.Errorf("%s: %w; the read tables do not exist: start `scrip serve`, which creates them", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
