package demo

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// Report has the results of the checks.
type Report struct {
	Campaigns       []string `json:"campaigns"`
	Claims          int      `json:"claims"`
	ClaimsPerSecond int      `json:"claims_per_second"`
	// Sync is the server's --sync, "" if the caller does not know it.
	Sync     string    `json:"sync,omitempty"`
	Promises []Promise `json:"promises"`
	// Wrong lists answers that break a promise. Empty if all promises hold.
	Wrong []string `json:"wrong,omitempty"`
	// Note is why SQL was not compared.
	Note string `json:"note,omitempty"`
}

// Promise is one line of the table: the expected value, and that of each source. "" = not checked.
type Promise struct {
	Name     string `json:"promise"`
	Expected string `json:"expected"`
	Answers  string `json:"answers,omitempty"`
	SQL      string `json:"sql,omitempty"`
	OK       bool   `json:"ok"`
}

// OK is true if all promises hold.
func (r *Report) OK() bool {
	return len(r.Wrong) == 0 && !slices.ContainsFunc(r.Promises, func(p Promise) bool { return !p.OK })
}

// counts are numbers of one source, by the promise that they belong to; a missing one is 0.
type counts map[string]int

// The numbers of the three promises: a code goes to one holder, a coupon is not redeemed too late or too often, a reminder
// fires once and not after a cancel.
const (
	claimed    = "coupons claimed"
	distinct   = "distinct codes"
	held       = "answered codes at their holders"
	repeated   = "claims again, same answer"
	soldOut    = "claims refused: sold out"
	redeemed   = "coupons redeemed"
	tooOften   = "redeemed again, refused"
	tooLate    = "redeemed too late, refused"
	expired    = "coupons expired"
	fired      = "reminders fired"
	cancelled  = "reminders cancelled, not fired"
	inAnswers  = 1
	inSQL      = 2
	wrongShown = 20
)

// promise is a number that is expected of some sources.
type promise struct {
	name     string
	expected int
	sources  int
}

func (d *sale) promises() []promise {
	none := share(d.few, everyTenth)
	return []promise{
		{claimed, d.Codes, inAnswers | inSQL},
		{distinct, d.Codes, inAnswers | inSQL},
		{held, d.Codes, inSQL},
		{repeated, share(d.Customers, 3), inAnswers},
		{soldOut, d.Customers - d.Codes, inAnswers},
		{redeemed, d.redeemed, inAnswers | inSQL},
		{tooOften, share(d.redeemed, 8), inAnswers},
		{tooLate, share(d.few, 5), inAnswers},
		{expired, d.few, inSQL},
		{fired, d.few - none, inSQL},
		{cancelled, none, inSQL},
	}
}

// count counts as an analyst would: a column for each promise. $1 are the campaigns, $2 is the sale, $3 and $4 are codes and the
// customers who were given them.
const count = `WITH c AS (SELECT * FROM scrip.coupon WHERE campaign = ANY($1)), m AS (SELECT * FROM scrip.reminder WHERE campaign = ANY($1))
SELECT (SELECT count(*) FROM c WHERE campaign = $2) AS "` + claimed + `",
	(SELECT count(DISTINCT code) FROM c WHERE campaign = $2) AS "` + distinct + `",
	(SELECT count(*) FROM c JOIN unnest($3::text[], $4::text[]) AS a(code, customer_id) USING (code, customer_id)) AS "` + held + `",
	(SELECT count(*) FROM scrip.redemption WHERE campaign = ANY($1)) AS "` + redeemed + `",
	(SELECT count(*) FROM c WHERE status = 'expired') AS "` + expired + `",
	(SELECT count(*) FROM m WHERE state = 'fired') AS "` + fired + `",
	(SELECT count(*) FROM m WHERE state = 'cancelled') AS "` + cancelled + `"`

// query counts until SQL has what is expected or patience ends. why there are no counts is "" if there are.
func (d *sale) query(ctx context.Context) (have counts, why string) {
	if d.PostgresURL == "" {
		return nil, "the URL of the read tables is unknown here; run the demo with the server's --data"
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := schema.Connect(ctx, d.PostgresURL)
	if err != nil {
		return nil, "connecting to PostgreSQL: " + err.Error()
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was written
	var codes, customers []string
	for i, o := range d.first {
		if o.Status == wire.StatusClaimed {
			codes, customers = append(codes, o.Code), append(customers, customer(i))
		}
	}
	for complete := false; err == nil && !complete; err = natsx.Pause(ctx, 200*time.Millisecond) {
		rows, failed := db.Query(ctx, count, []string{d.sale, d.brief, d.next}, d.sale, codes, customers)
		if failed != nil {
			return have, "PostgreSQL: " + failed.Error()
		}
		row, failed := pgx.CollectExactlyOneRow(rows, pgx.RowToMap)
		if failed != nil {
			return have, "PostgreSQL: " + failed.Error()
		}
		have = counts{}
		for name, n := range row {
			have[name] = int(n.(int64))
		}
		complete = !slices.ContainsFunc(d.promises(), func(p promise) bool { return p.sources&inSQL != 0 && have[p.name] != p.expected })
	}
	return have, "" // it may not have caught up: the table shows the difference
}

func (d *sale) report(tables counts, missing string) *Report {
	r := &Report{Campaigns: []string{d.sale, d.brief, d.next}, Claims: d.claims, Note: missing, Wrong: d.wrong}
	if s := d.took.Seconds(); s > 0 {
		r.ClaimsPerSecond = int(float64(d.claims) / s)
	}
	for _, p := range d.promises() {
		line := Promise{Name: p.name, Expected: strconv.Itoa(p.expected), OK: true}
		for _, s := range []struct {
			source int
			have   counts
			text   *string
		}{{inAnswers, d.answers, &line.Answers}, {inSQL, tables, &line.SQL}} {
			if p.sources&s.source != 0 && s.have != nil {
				*s.text = strconv.Itoa(s.have[p.name])
				line.OK = line.OK && *s.text == line.Expected
			}
		}
		r.Promises = append(r.Promises, line)
	}
	if len(r.Wrong) > wrongShown {
		r.Wrong = append(r.Wrong[:wrongShown:wrongShown], fmt.Sprintf("and %d more", len(r.Wrong)-wrongShown))
	}
	return r
}
