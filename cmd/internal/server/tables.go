package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/pgd"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	// tablesStop is how long a private PostgreSQL may take for its last checkpoint; then it is stopped immediately and
	// recovers at the next start.
	tablesStop = 4 * time.Second
	// tablesNice gives claims priority over the read tables: these lag under load and catch up afterwards.
	tablesNice = 10
	// mostRead and mostProjected bound the connections of a server: those of requests, and those of what fills the tables, so that no
	// request waits before it. Lanes are projected in parallel, and segments are sealed, merged and removed beside them. The guard has
	// one, and otherConns are those of the projector's lock and of the look at the settings. Jobs have their own.
	mostRead, mostProjected, otherConns = 8, 10, 2
)

// tables is the database with the read tables. It may be unavailable: claims do not need it.
type tables struct {
	pool    *pgxpool.Pool // of requests
	work    *pgxpool.Pool // of the projector, the keeper of segments and that of deliveries
	guard   *pgxpool.Pool // one connection for the rounds of analysts, which no request takes
	cluster *pgd.Cluster  // nil = external
	given   string        // URL of an external one
	host    string        // where other machines reach a private one; "" = nowhere
	tried   chan struct{} // closed after the first attempt to start a private one

	mu      sync.Mutex // guards the fields below
	problem error      // why a private one does not run
}

// startTables begins to start a private PostgreSQL, or keeps the URL of the given one.
func (s *server) startTables(ctx context.Context) error {
	if s.opts.Postgres == "" && !s.opts.has(RoleProjector) {
		return nil
	}
	t := &tables{given: s.opts.Postgres, tried: make(chan struct{})}
	if t.given != "" {
		close(t.tried)
	} else {
		if _, err := pgd.Find(); err != nil {
			return fmt.Errorf("the read tables need PostgreSQL: %w; or run without a projector: --roles lanes,scheduler,api", err)
		}
		opts := pgd.Options{DataDir: s.dir.Path(), Dir: s.opts.TablesDir, StopTimeout: tablesStop, Nice: tablesNice, URLChanged: s.tablesMoved, Logger: s.log}
		if host, port, err := net.SplitHostPort(s.opts.PostgresListen); err == nil {
			if opts.Port, err = strconv.Atoi(port); err != nil {
				return fmt.Errorf("--postgres-listen %s: the port must be a number", s.opts.PostgresListen)
			}
			if !loopback(host) {
				t.host = cmp.Or(host, "0.0.0.0")
				opts.Host, opts.Certificate = t.host, s.certs.Files
			}
		}
		t.cluster = pgd.Open(opts)
		s.cluster.Store(t.cluster)
		s.group.start("postgres", func(ctx context.Context) error { return s.keepCluster(ctx, t) })
	}
	for pool, most := range t.pools(s.stream.Lanes) {
		var err error
		if *pool, err = t.newPool(ctx, most); err != nil {
			t.close()
			return err
		}
	}
	s.tables = t
	if err := s.metrics.registry.Register(newPostgresMetric(t.pool)); err != nil {
		return err
	}
	s.health.add("postgres", false, func() (bool, any) {
		if err := t.status(); err != nil {
			return false, map[string]any{"error": err.Error()}
		}
		return true, map[string]any{"private": t.cluster != nil}
	})
	return nil
}

// keepCluster starts the private cluster and keeps it running. It retries a failed start with backoff; claims are served
// meanwhile.
func (s *server) keepCluster(ctx context.Context, t *tables) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.MaxInterval = 10 * time.Second
	tried := sync.OnceFunc(func() { close(t.tried) })
	defer tried()
	for {
		url, err := t.cluster.Start(ctx)
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			t.setProblem(nil)
			tried()
			s.tablesMoved(url)
			_ = t.cluster.Run(ctx) // returns nil when ctx ends
			break
		}
		if t.setProblem(err) {
			s.log.Error("PostgreSQL does not start; claims and redemptions are served, the read tables lag; retrying", "err", err)
		}
		tried()
		_ = natsx.Pause(ctx, pauses.NextBackOff()) // the loop checks ctx
	}
	return t.cluster.Stop(context.WithoutCancel(ctx))
}

// setProblem stores why the cluster does not run. It returns true if the reason is a new one.
func (t *tables) setProblem(err error) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = err != nil && (t.problem == nil || t.problem.Error() != err.Error())
	t.problem = err
	return changed
}

// status returns why the tables are unavailable, nil if they are not.
func (t *tables) status() error {
	t.mu.Lock()
	problem := t.problem
	t.mu.Unlock()
	switch {
	case problem != nil:
		return problem
	case t.cluster == nil:
		return nil
	case t.cluster.PID() == 0:
		return errors.New("PostgreSQL does not run; restarting it")
	}
	return nil
}

// url is the current URL of the tables, "" = none yet.
func (t *tables) url() string {
	if t.cluster == nil {
		return t.given
	}
	return t.cluster.URL()
}

// pools are the pools, each with the most connections that it has: no setting of the URL and no number of CPUs raises them.
func (t *tables) pools(lanes int) map[**pgxpool.Pool]int32 {
	return map[**pgxpool.Pool]int32{&t.pool: mostRead, &t.work: int32(min(lanes+4, mostProjected)), &t.guard: 1}
}

// newPool makes a pool that connects on use. A private cluster may not run yet and may move to another port, so each
// new connection reads its current URL.
func (t *tables) newPool(ctx context.Context, most int32) (*pgxpool.Pool, error) {
	url := t.given
	if t.cluster != nil {
		url = "postgres://127.0.0.1/" // replaced at each connection
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("--postgres is not a valid PostgreSQL URL: %w", err)
	}
	config.MaxConns, config.MinConns, config.MinIdleConns = most, 0, 0
	config.ConnConfig.RuntimeParams["application_name"] = "scrip"
	config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = schema.MostIdle
	schema.Pin(config.ConnConfig)
	if t.cluster != nil {
		config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			now := t.cluster.URL()
			if now == "" {
				return errors.New("the private PostgreSQL does not run yet")
			}
			fresh, err := pgx.ParseConfig(now)
			if err != nil {
				return err
			}
			c.Host, c.Port, c.User, c.Password, c.Database = fresh.Host, fresh.Port, fresh.User, fresh.Password, fresh.Database
			c.TLSConfig, c.Fallbacks = fresh.TLSConfig, fresh.Fallbacks
			return nil
		}
	}
	return pgxpool.NewWithConfig(ctx, config)
}

func (t *tables) close() {
	for _, pool := range []*pgxpool.Pool{t.pool, t.work, t.guard} {
		if pool != nil {
			pool.Close()
		}
	}
}
