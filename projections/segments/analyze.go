package segments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// analyzePart: an analysis waits for as many times as long as the one before took, so it takes a hundredth of a core.
	analyzePart = 100
	// rushFor is how long an analysis waits at most while claims fill a segment in quietFor.
	rushFor = 10 * time.Minute
)

// What tests shorten.
var (
	// analyzeEvery is the least time between two analyses.
	analyzeEvery = time.Minute
	// detail is the statistics target of an analysis: it reads 300 times as many rows of each segment. That of all segments
	// together is in tables.sql.
	detail = 10
)

// Rows in the tables of segments, and as of the last analysis, -1 if there was none: PostgreSQL has recorded that. Merged
// rows are counted as long as they are attached. The number of rows of segment 0 is that of its own statistics.
//
// $1 = rows of the young segment
const countedSQL = `
SELECT (coalesce(sum(rows), 0) + $1 +
        (SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'scrip.coupon_claim_0'::regclass))::float8,
       (SELECT reltuples::float8 FROM pg_class WHERE oid = 'scrip.coupon_claim'::regclass)
FROM scrip.segment`

// analyzeChanged analyzes when the number of rows has changed by a fifth, in a quiet moment.
func (s *Set) analyzeChanged(ctx context.Context) error {
	since := time.Since(s.analyzed)
	if since < max(analyzeEvery, analyzePart*s.analyzing) {
		return nil
	}
	if err := s.lock(ctx); err != nil {
		return nil
	}
	busy, young := time.Since(s.rotated) < quietFor, 0
	if s.young != nil {
		young = s.young.rows
	}
	s.unlock()
	if busy && since < rushFor {
		return nil
	}
	var rows, before float64
	if err := s.db.QueryRow(ctx, s.in(countedSQL), young).Scan(&rows, &before); err != nil {
		return s.explain("looking for changes since the last analysis", err)
	}
	if before = max(before, 0); max(rows-before, before-rows) <= 1000+before/5 {
		return nil
	}
	err := s.Analyze(ctx)
	if err != nil && inTheWay(err) { // the next time
		return nil
	}
	return err
}

const (
	patientSQL = `SET statement_timeout = 0; SET lock_timeout = 0; SET synchronous_commit = off;
SET default_statistics_target = %d`

	// Columns that queries compare; sealing analyzes code, and look-ups need no more of it. PostgreSQL analyzes each
	// segment with the table of all. A writer that begins a segment waits while some thousand rows are read for the latter.
	analyzeSQL = `ANALYZE scrip.coupon_claim (segment, campaign, customer_id, claimed_at), scrip.segment, scrip.removal`

	// The number of distinct n with which a join by campaign and n finds each coupon once, and the one that was given. It
	// is the number of rows, times the part of them that has the campaign of another row, as the planner will reckon it.
	distinctSQL = `
SELECT greatest(round(x.reltuples * (x.alike + x.rest * x.rest / greatest(x.campaigns - x.common, 1))), 1)::float8,
       (SELECT coalesce(max(o.option_value::float8), 0) FROM pg_attribute a, pg_options_to_table(a.attoptions) o
        WHERE a.attrelid = 'scrip.reminder'::regclass AND a.attname = 'n' AND o.option_name = 'n_distinct')
FROM (
    SELECT c.oid, c.reltuples::float8, f.*,
           CASE WHEN s.n_distinct < 0 THEN -s.n_distinct * c.reltuples ELSE s.n_distinct END AS campaigns
    FROM pg_class c JOIN pg_namespace m ON m.oid = c.relnamespace
    JOIN pg_stats s ON s.schemaname = m.nspname AND s.tablename = c.relname AND s.attname = 'campaign' AND s.inherited
    CROSS JOIN LATERAL (
        SELECT count(*) AS common, coalesce(sum(u * u), 0) AS alike, greatest(1 - coalesce(sum(u), 0), 0) AS rest
        FROM unnest(s.most_common_freqs) u) f
    WHERE c.oid = 'scrip.coupon_claim'::regclass) x`

	// A few rows are enough: the number is given.
	analyzeNumbersSQL = `ANALYZE scrip.coupon_state (n), scrip.redemption_row (n), scrip.reminder (n)`
)

// Of the tables that are joined with coupon_claim by campaign and n; of reminder last, where the number that was given is
// read. The n of coupon_claim has no statistics, so the planner takes the other table's number: a value that is frequent in
// both samples, which low ones are where campaigns are many, would count as so many pairs, whatever their campaigns are.
var giveSQL = []string{
	"ALTER TABLE scrip.coupon_state ALTER COLUMN n SET (n_distinct = %.0f)",
	"ALTER TABLE scrip.redemption_row ALTER COLUMN n SET (n_distinct = %.0f)",
	"ALTER TABLE scrip.reminder ALTER COLUMN n SET (n_distinct = %.0f)",
}

// Analyze makes the statistics of all segments together, which PostgreSQL's autovacuum does not. Without them a join with
// campaigns is planned as one with 200 campaigns, and one by campaign and n as if these did not depend on each other. It
// needs no fence: statistics are the same, whoever makes them. Run must not be running.
func (s *Set) Analyze(ctx context.Context) error {
	if s.opts.KeysOnly {
		return nil
	}
	started := time.Now()
	defer func() { s.analyzed, s.analyzing = time.Now(), time.Since(started) }()
	conn, err := s.db.Acquire(ctx)
	if err != nil {
		return s.explain("analyzing coupons", err)
	}
	defer conn.Release()
	defer func() { _ = conn.Conn().Close(context.WithoutCancel(ctx)) }() // with its settings
	// Apart, so that each table is locked while it is read and no longer.
	run := func(sql string) error {
		if _, err := conn.Exec(ctx, s.in(sql)); err != nil {
			return s.explain("analyzing coupons", err)
		}
		return nil
	}
	if err := run(fmt.Sprintf(patientSQL, detail)); err != nil {
		return err
	}
	if err := run(analyzeSQL); err != nil {
		return err
	}
	var wanted, given float64
	err = conn.QueryRow(ctx, s.in(distinctSQL)).Scan(&wanted, &given)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // there is no coupon
		return nil
	case err != nil:
		return s.explain("reading the statistics of coupons", err)
	case wanted < given*5/4 && given < wanted*5/4:
		return nil
	}
	for _, sql := range giveSQL {
		if err := run(fmt.Sprintf(sql, wanted)); err != nil {
			return err
		}
	}
	if err := run(fmt.Sprintf(patientSQL, 1)); err != nil {
		return err
	}
	return run(analyzeNumbersSQL)
}
