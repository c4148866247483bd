package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/pgd"
)

// postgresServer is a PostgreSQL of its own, made and run as scrip makes its private one, with the settings that such a
// load needs: much memory, few checkpoints.
type postgresServer struct {
	node
	binaries pgd.Binaries
	cluster  *pgd.Cluster
	url      string
	db       *pgx.Conn
}

// commit is the value of synchronous_commit.
func (s *postgresServer) commit() string { return s.durability.Choose("on", "off") }

func (s *postgresServer) start(ctx context.Context) (err error) {
	if s.binaries, err = pgd.Find(); err != nil {
		return err
	}
	s.cluster = pgd.Open(pgd.Options{
		DataDir:      s.dir,
		FallbackBase: filepath.Join(s.dir, "elsewhere"),
		Binaries:     s.binaries,
		Settings: map[string]string{
			"synchronous_commit": s.commit(), "max_connections": "300", "shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min",
			// Plans are kept from when the tables were small; these recipes are made for their indexes.
			"enable_seqscan": "off",
		},
		Tied:   true,
		Logger: slog.New(slog.DiscardHandler),
	})
	if s.url, err = s.cluster.Start(ctx); err != nil {
		return err
	}
	s.db, err = pgx.Connect(ctx, s.url)
	return err
}

func (s *postgresServer) settings() string {
	return fmt.Sprintf("%s, synchronous_commit %s, fsync on, shared_buffers 1GB, max_wal_size 8GB", s.binaries.Version, s.commit())
}

func (s *postgresServer) pids() []int { return []int{s.cluster.PID()} }

func (s *postgresServer) stop(within time.Duration) {
	if s.db != nil {
		_ = s.db.Close(context.Background())
	}
	if s.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		_ = s.cluster.Stop(ctx)
	}
}

// checkpoint writes what was loaded to disk, so that no run pays for it. It needs the superuser.
func (s *postgresServer) checkpoint(ctx context.Context) error {
	url := s.cluster.AdminURL()
	if url == "" {
		return errors.New("CHECKPOINT: the cluster has no socket for its superuser; use a shorter directory (TMPDIR)")
	}
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("CHECKPOINT: %w", err)
	}
	defer db.Close(context.WithoutCancel(ctx))
	_, err = db.Exec(ctx, "CHECKPOINT")
	return err
}

func (s *postgresServer) execute(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if _, err := s.db.Exec(ctx, sql); err != nil {
			first, _, _ := strings.Cut(sql, "(")
			return fmt.Errorf("%s: %w", first, err)
		}
	}
	return nil
}

// load drops all tables and makes one, with its rows before its indexes and statistics. It copies rows until next returns
// nil.
func (s *postgresServer) load(ctx context.Context, create, table, columns string, next func() []any, indexes ...string) error {
	if err := s.execute(ctx, "DROP TABLE IF EXISTS coupon, expirable", create); err != nil {
		return err
	}
	rows := pgx.CopyFromFunc(func() ([]any, error) { return next(), nil })
	if _, err := s.db.CopyFrom(ctx, pgx.Identifier{table}, strings.Fields(columns), rows); err != nil {
		return fmt.Errorf("filling PostgreSQL: %w", err)
	}
	if err := s.execute(ctx, append(indexes, "VACUUM ANALYZE "+table)...); err != nil {
		return err
	}
	return s.checkpoint(ctx)
}

// pgRecipe is how many callers it has, and how many claims each has in one transaction.
type pgRecipe struct{ callers, batch int }

// More connections than these make PostgreSQL slower on few cores; fewer share fewer fsyncs.
var pgRow, pgBatch = pgRecipe{callers: 32, batch: 1}, pgRecipe{callers: 4, batch: 256}

func (rc pgRecipe) open(ctx context.Context, b *bench, p *plan) (job, error) {
	s := b.postgres
	if err := s.fillCoupons(ctx, p); err != nil {
		return job{}, err
	}
	j := job{callers: rc.callers, batch: rc.batch, close: func() {}}
	if p.style == alone {
		j.callers = 1
	}
	j.inFlight = j.callers * j.batch
	j.caller = func(ctx context.Context, _ int) (caller, error) {
		db, err := pgx.Connect(ctx, s.url)
		if err != nil {
			return caller{}, err
		}
		c := &pgCaller{db: db, p: p, seen: make([]int, len(p.names))}
		send := each(c.claim)
		if rc.batch > 1 {
			send = c.batch
		}
		return caller{send: send, close: func() { _ = db.Close(context.Background()) }}, nil
	}
	j.check = s.given
	return j, nil
}

// pgCaller has a connection of its own. It remembers for each campaign up to which number coupons are claimed, so that it
// need not step over the claimed ones again; when nothing is free after that, it searches from the first.
type pgCaller struct {
	db   *pgx.Conn
	p    *plan
	seen []int
}

var (
	pgClaimSQL, pgClaimManySQL   = recipeText("claim.sql"), recipeText("claim_many.sql")
	pgRedeemSQL, pgRedeemManySQL = recipeText("redeem.sql"), recipeText("redeem_many.sql")
)

// claim claims one coupon in a transaction of its own.
func (c *pgCaller) claim(ctx context.Context, i int) answer {
	k, customer := c.p.index(i), c.p.customer(i)
	var n int
	var text string
	err := c.db.QueryRow(ctx, pgClaimSQL, k, customer, c.seen[k]).Scan(&n, &text)
	if errors.Is(err, pgx.ErrNoRows) && c.seen[k] > 0 {
		c.seen[k] = 0
		err = c.db.QueryRow(ctx, pgClaimSQL, k, customer, 0).Scan(&n, &text)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return answer{verdict: refused}
	}
	if err != nil {
		return failure(err) // also a violation of coupon_holder: the customer has a coupon, without a repeated claim
	}
	c.seen[k] = n
	if c.p.redeem {
		if err := c.db.QueryRow(ctx, pgRedeemSQL, text, c.p.order(i)).Scan(&n); err != nil {
			return failure(fmt.Errorf("redeeming: %w", err))
		}
	}
	return answer{verdict: won, code: text}
}

// batch claims for many customers in one transaction: one statement per campaign, all sent in one batch.
func (c *pgCaller) batch(ctx context.Context, from, to int, answers []answer) error {
	operation := make(map[string]int, to-from)
	byCampaign := map[int][]string{}
	for i := from; i < to; i++ {
		customer, k := c.p.customer(i), c.p.index(i)
		operation[customer] = i
		byCampaign[k] = append(byCampaign[k], customer)
		answers[i] = answer{verdict: refused}
	}
	// Those who got nothing in campaigns where the search did not start at the first try again.
	for len(byCampaign) > 0 {
		again := map[int][]string{}
		if err := c.claimMany(ctx, byCampaign, again, operation, answers); err != nil {
			return err
		}
		byCampaign = again
	}
	if c.p.redeem {
		return c.redeemMany(ctx, from, to, answers)
	}
	return nil
}

// claimMany runs one transaction.
func (c *pgCaller) claimMany(ctx context.Context, byCampaign, again map[int][]string, operation map[string]int, answers []answer) error {
	batch := &pgx.Batch{}
	for k, customers := range byCampaign {
		first := c.seen[k]
		batch.Queue(pgClaimManySQL, k, customers, first).Query(func(rows pgx.Rows) error {
			got, n := 0, 0
			var customer, text string
			_, err := pgx.ForEachRow(rows, []any{&customer, &n, &text}, func() error {
				got++
				answers[operation[customer]] = answer{verdict: won, code: text}
				c.seen[k] = max(c.seen[k], n)
				return nil
			})
			if err != nil || got == len(customers) {
				return err
			}
			c.seen[k] = 0
			if first > 0 {
				again[k] = slices.DeleteFunc(customers, func(who string) bool { return answers[operation[who]].verdict == won })
			}
			return nil
		})
	}
	return c.db.SendBatch(ctx, batch).Close()
}

func (c *pgCaller) redeemMany(ctx context.Context, from, to int, answers []answer) error {
	var codes, orders []string
	for i := from; i < to; i++ {
		if answers[i].verdict == won {
			codes, orders = append(codes, answers[i].code), append(orders, c.p.order(i))
		}
	}
	tag, err := c.db.Exec(ctx, pgRedeemManySQL, codes, orders)
	if err == nil && int(tag.RowsAffected()) != len(codes) {
		err = fmt.Errorf("%d of %d codes were redeemed", tag.RowsAffected(), len(codes))
	}
	return err
}

// given compares the answers with the coupons that are claimed and redeemed in PostgreSQL.
func (s *postgresServer) given(ctx context.Context, t tally) error {
	const sql = `SELECT count(*), count(DISTINCT (campaign, n)), count(DISTINCT customer_id), count(order_id) FROM coupon WHERE customer_id IS NOT NULL`
	var claims, coupons, customers, redeemed int
	if err := s.db.QueryRow(ctx, sql).Scan(&claims, &coupons, &customers, &redeemed); err != nil {
		return err
	}
	if claims != t.won || coupons != t.won || customers != t.won || redeemed != t.redeemed {
		return fmt.Errorf("PostgreSQL has %d claims of %d coupons by %d customers and %d redeemed, answered were %d and %d",
			claims, coupons, customers, redeemed, t.won, t.redeemed)
	}
	return nil
}

// fillCoupons makes one row per coupon.
func (s *postgresServer) fillCoupons(ctx context.Context, p *plan) error {
	indexes := []string{
		`ALTER TABLE coupon ADD PRIMARY KEY (campaign, n)`,
		`CREATE INDEX coupon_free ON coupon (campaign, n) WHERE customer_id IS NULL`,
		`CREATE UNIQUE INDEX coupon_holder ON coupon (campaign, customer_id) WHERE customer_id IS NOT NULL`,
	}
	if p.redeem {
		indexes = append(indexes, `CREATE UNIQUE INDEX coupon_code ON coupon (code)`)
	}
	next := p.coupon()
	return s.load(ctx, `CREATE TABLE coupon (campaign int NOT NULL, n int NOT NULL, code text NOT NULL, customer_id text, order_id text, claimed_at timestamptz)`,
		"coupon", "campaign n code", func() []any {
			c, n, ok := next()
			if !ok {
				return nil
			}
			return []any{c, n, code(c, n)}
		}, indexes...)
}
