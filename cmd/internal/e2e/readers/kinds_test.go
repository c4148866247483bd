package readers

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// idleFor is how long the session that idles in a transaction may.
	idleFor = 10 * time.Second
	// snapshotMost is how long a reader waits in its snapshot while there are rebuilds.
	snapshotMost = 300 * time.Millisecond
	// failedPause is the pause of a reader whose read has failed: many who do not pause would measure their own CPU.
	failedPause = 50 * time.Millisecond
	// claimedSQL is the campaigns' counts, and couponsSQL those of the rows.
	claimedSQL = "SELECT campaign, claimed FROM scrip.campaign"
	couponsSQL = "SELECT campaign, count(*) FROM scrip.coupon GROUP BY campaign"
)

// readers read without a pause.
type readers struct {
	t      *testing.T
	site   *site
	load   *load
	report *report
	seed   uint64
	known  known
	all    sync.WaitGroup
	idled  atomic.Int64 // sessions that PostgreSQL ended as they idled
	calm   atomic.Bool  // there are no more rebuilds
}

// run starts the ten, and the one that idles.
func (r *readers) run(ctx context.Context) {
	analyst := func(i int) string { return r.site.postgres[i%(analysts-1)] }
	sessions := 0
	for _, kind := range []struct {
		what  string
		count int
		read  readSQL
	}{
		{"a count", 4, r.count},
		{"a transaction of two statements", 2, r.two},
		{"a snapshot", 2, r.snapshot},
	} {
		for range kind.count {
			url, rng := analyst(sessions), rand.New(rand.NewPCG(r.seed, uint64(10+sessions)))
			sessions++
			r.all.Go(func() { r.sql(ctx, url, kind.what, rng, kind.read) })
		}
	}
	r.all.Go(func() { r.again(ctx, "an export", r.export) })
	r.all.Go(func() { r.again(ctx, "pages", r.pages) })
	r.all.Go(func() { r.idle(ctx, r.site.postgres[analysts-1]) })
}

// again reads until ctx ends, and reports what fails.
func (r *readers) again(ctx context.Context, kind string, read func(context.Context, int) error) {
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		err := read(ctx, n)
		if ctx.Err() != nil {
			return
		}
		if r.report.done(kind, began, err); err != nil {
			_ = sleep(ctx, failedPause)
		}
	}
}

type readSQL func(context.Context, *pgx.Conn, *rand.Rand) error

// sql reads in one session, and in another one when that has ended.
func (r *readers) sql(ctx context.Context, url, kind string, rng *rand.Rand, read readSQL) {
	var db *pgx.Conn
	defer func() {
		if db != nil {
			_ = db.Close(context.WithoutCancel(ctx))
		}
	}()
	r.again(ctx, kind, func(ctx context.Context, _ int) (err error) {
		if db == nil || db.IsClosed() {
			if db, err = pgx.Connect(ctx, url); err != nil {
				return fmt.Errorf("connecting: %w", err)
			}
		}
		return read(ctx, db, rng)
	})
}

// count counts all coupons in one statement.
func (r *readers) count(ctx context.Context, db *pgx.Conn, _ *rand.Rand) error {
	_, least, _ := r.known.least()
	var got int64
	if err := db.QueryRow(ctx, "SELECT count(*) FROM scrip.coupon").Scan(&got); err != nil {
		return err
	}
	claims, _ := r.load.sent()
	if err := within("coupons", got, least, sum(claims)); err != nil {
		return err
	}
	r.known.found(nil, got, 0)
	return nil
}

// two counts redemptions, then reads the campaigns, which have as many or more.
func (r *readers) two(ctx context.Context, db *pgx.Conn, _ *rand.Rand) error {
	_, _, least := r.known.least()
	return pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		const counter = "SELECT coalesce(sum(redeemed), 0)::bigint FROM scrip.campaign"
		var rows, counted int64
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM scrip.redemption").Scan(&rows); err != nil {
			return fmt.Errorf("the first statement: %w", err)
		}
		if err := tx.QueryRow(ctx, counter).Scan(&counted); err != nil {
			return fmt.Errorf("the second statement: %w", err)
		}
		_, most := r.load.sent()
		if err := within("redemptions", rows, least, most); err != nil {
			return err
		}
		if err := within("redemptions of all campaigns", counted, rows, most); err != nil {
			return err
		}
		r.known.found(nil, 0, counted)
		return nil
	})
}

// snapshot waits in a snapshot between counting the coupons and reading their campaigns, or the other way round. A rebuild
// replaces the views in the order in which most statements lock them, coupons first. It gives way to a transaction of the
// other order, and would do so without end if there was always one.
func (r *readers) snapshot(ctx context.Context, db *pgx.Conn, rng *rand.Rand) error {
	wait := func() error { return sleep(ctx, time.Duration(rng.Int64N(int64(snapshotMost)))) }
	return r.waiting(ctx, db, !r.calm.Load(), wait)
}

func (r *readers) waiting(ctx context.Context, db *pgx.Conn, couponsFirst bool, wait func() error) error {
	least, _, _ := r.known.least()
	first, second := claimedSQL, couponsSQL
	if couponsFirst {
		first, second = second, first
	}
	return pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		claimed, err := counts(ctx, tx, first)
		if err != nil {
			return fmt.Errorf("the first statement: %w", err)
		}
		began := time.Now()
		if err := wait(); err != nil {
			return err
		}
		age := time.Since(began).Round(time.Millisecond)
		rows, err := counts(ctx, tx, second)
		if err != nil {
			return fmt.Errorf("after %s: %w", age, err)
		}
		if couponsFirst {
			claimed, rows = rows, claimed
		}
		most, _ := r.load.sent()
		for _, name := range r.load.names {
			if err := within("claims of "+name, claimed[name], least[name], most[name]); err != nil {
				return err
			}
			if rows[name] != claimed[name] {
				return fmt.Errorf("%s has %d claims and %d coupons in one snapshot, %s old",
					name, claimed[name], rows[name], age)
			}
		}
		r.known.found(claimed, sum(claimed), 0)
		return nil
	})
}

// old is a snapshot that waits until segments are merged, and longer, beside the other readers.
func (r *readers) old(ctx context.Context) {
	began := time.Now()
	db, err := pgx.Connect(ctx, r.site.postgres[analysts-1])
	if err == nil {
		defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck
		err = r.waiting(ctx, db, false, func() error {
			for merged := 0; merged == 0; {
				if err := r.site.ask(ctx, mergedSQL, &merged); err != nil {
					return err
				}
				if time.Since(began) > mergedIn {
					return fmt.Errorf("no segments were merged in %s", mergedIn)
				}
				_ = sleep(ctx, time.Second)
			}
			return sleep(ctx, oldFor)
		})
	}
	if ctx.Err() == nil {
		r.report.done("an old snapshot", began, err)
	}
}

// dropped waits until the segments that are merged by now are dropped, which no reader may prevent.
func (r *readers) dropped(ctx context.Context) {
	began := time.Now()
	left, since := 0, began
	for ctx.Err() == nil {
		var merged int
		before := began.Format(time.RFC3339Nano)
		err := r.site.ask(ctx, fmt.Sprintf("count(*) FILTER (WHERE merged_at < '%s')", before), &merged)
		if merged != left {
			left, since = merged, time.Now()
		}
		if err == nil && merged > 0 && time.Since(since) > droppedIn {
			err = fmt.Errorf("of %d segments that were merged before none was dropped for %s", merged, droppedIn)
		}
		if err != nil || merged == 0 {
			r.report.done("dropping", began, err)
			return
		}
		_ = sleep(ctx, time.Second)
	}
}

// idle reads the coupons in a transaction, and waits in it until PostgreSQL ends the session.
func (r *readers) idle(ctx context.Context, url string) {
	r.again(ctx, "the session that idles", func(ctx context.Context, _ int) error {
		db, err := pgx.Connect(ctx, url)
		if err != nil {
			return fmt.Errorf("connecting: %w", err)
		}
		defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck
		const own = "SET idle_in_transaction_session_timeout = %d"
		if _, err = db.Exec(ctx, fmt.Sprintf(own, idleFor.Milliseconds())); err != nil {
			return err
		}
		if _, err = db.Exec(ctx, "BEGIN; SELECT count(*) FROM scrip.coupon"); err != nil {
			return err
		}
		_, err = db.WaitForNotification(ctx) // there is none
		if pg := new(pgconn.PgError); errors.As(err, &pg) && pg.Code == "25P03" {
			r.idled.Add(1)
			return nil
		}
		return fmt.Errorf("waiting: %w", err)
	})
}

// export exports the coupons of a campaign as CSV.
func (r *readers) export(ctx context.Context, n int) error {
	name := r.load.names[n%len(r.load.names)]
	least, _, _ := r.known.least()
	resp, err := r.get(ctx, "/v1/campaigns/"+name+"/codes", r.site.own)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read
	rows := csv.NewReader(resp.Body)
	rows.ReuseRecord = true
	if _, err := rows.Read(); err != nil {
		return fmt.Errorf("reading the head of %s: %w", name, err)
	}
	var seen numbers
	for {
		row, err := rows.Read()
		if err == io.EOF {
			return seen.whole(r, name, least[name])
		}
		if err != nil {
			return fmt.Errorf("reading %s after %d coupons: %w", name, seen.count, err)
		}
		if err := seen.add(row[0] == name, row[1]); err != nil {
			return err
		}
	}
}

// pages reads the list of a campaign's coupons to its end.
func (r *readers) pages(ctx context.Context, n int) error {
	name := r.load.names[n%len(r.load.names)]
	least, _, _ := r.known.least()
	var seen numbers
	support := func(req *http.Request) { req.Header.Set("Authorization", "Bearer "+r.site.support) }
	for after := ""; ; {
		resp, err := r.get(ctx, "/v1/coupons?campaign="+name+"&limit=1000&after="+url.QueryEscape(after), support)
		if err != nil {
			return fmt.Errorf("after %d coupons: %w", seen.count, err)
		}
		var page struct {
			Items []struct {
				Campaign string
				N        json.Number
			}
			Next string
		}
		err = json.NewDecoder(resp.Body).Decode(&page)
		_ = resp.Body.Close()
		if err != nil {
			return fmt.Errorf("reading a page of %s: %w", name, err)
		}
		for _, c := range page.Items {
			if err := seen.add(c.Campaign == name, c.N.String()); err != nil {
				return err
			}
		}
		if after = page.Next; after == "" {
			return seen.whole(r, name, least[name])
		}
	}
}

// get asks for something over HTTP. A key that asks too often waits as the answer says.
func (r *readers) get(ctx context.Context, path string, as func(*http.Request)) (*http.Response, error) {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.site.http+path, nil)
		if err != nil {
			return nil, err
		}
		as(req)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode == http.StatusOK {
			return resp, err
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != http.StatusTooManyRequests {
			return nil, fmt.Errorf("GET %s: %d %s", path, resp.StatusCode, text)
		}
		if err := sleep(ctx, time.Duration(max(after, 1))*time.Second); err != nil {
			return nil, err
		}
	}
}

// numbers are those of a campaign's coupons in a list. They begin with 1, and none is left out or there twice.
type numbers struct {
	count int64
	seen  []bool
}

func (s *numbers) add(fits bool, text string) error {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 || !fits {
		return fmt.Errorf("after %d coupons one with the number %q, of this campaign: %t", s.count, text, fits)
	}
	for uint64(len(s.seen)) <= n {
		s.seen = append(s.seen, false)
	}
	if s.seen[n] {
		return fmt.Errorf("coupon %d is there twice, in %d", n, s.count)
	}
	s.seen[n] = true
	s.count++
	return nil
}

// whole judges a list that has ended.
func (s *numbers) whole(r *readers, name string, least int64) error {
	most, _ := r.load.sent()
	if last := int64(max(len(s.seen)-1, 0)); last != s.count {
		return fmt.Errorf("%s: %d coupons, and the last one has number %d", name, s.count, last)
	}
	r.known.found(map[string]int64{name: s.count}, 0, 0)
	return within("coupons of "+name, s.count, least, most[name])
}

func counts(ctx context.Context, tx pgx.Tx, sql string) (map[string]int64, error) {
	rows, _ := tx.Query(ctx, sql) // its error is that of the rows
	all := map[string]int64{}
	var name string
	var n int64
	_, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error {
		all[name] = n
		return nil
	})
	return all, err
}

func sum(all map[string]int64) (n int64) {
	for _, one := range all {
		n += one
	}
	return n
}
