package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/pgd"
)

// postgresServer is a PostgreSQL of its own, made and run as scrip makes its private one, with the settings that such a
// load needs: much memory, few checkpoints.
type postgresServer struct {
	binaries   pgd.Binaries
	cluster    *pgd.Cluster
	durability durability
	url        string
	db         *pgx.Conn
}

func (s *postgresServer) missing() (err error) {
	s.binaries, err = pgd.Find()
	return err
}

// commit is the value of synchronous_commit.
func (d durability) commit() string { return d.choose("on", "off") }

func (s *postgresServer) start(ctx context.Context, dir string, d durability) (err error) {
	s.durability = d
	s.cluster = pgd.Open(pgd.Options{
		DataDir:      dir,
		FallbackBase: filepath.Join(dir, "elsewhere"),
		Binaries:     s.binaries,
		Settings: map[string]string{
			"synchronous_commit": d.commit(), "max_connections": "300", "shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min",
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
	return fmt.Sprintf("%s, synchronous_commit %s, fsync on, shared_buffers 1GB, max_wal_size 8GB", s.binaries.Version, s.durability.commit())
}

func (s *postgresServer) pids() []int { return []int{s.cluster.PID()} }

func (s *postgresServer) settle(context.Context) error { return nil }

func (s *postgresServer) stop() {
	if s.db != nil {
		_ = s.db.Close(context.Background())
	}
	if s.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
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
	if _, err := db.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("CHECKPOINT: %w", err)
	}
	return nil
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

// load copies rows into a table until next returns nil.
func (s *postgresServer) load(ctx context.Context, table, columns string, next func() []any) error {
	rows := pgx.CopyFromFunc(func() ([]any, error) { return next(), nil })
	if _, err := s.db.CopyFrom(ctx, pgx.Identifier{table}, strings.Fields(columns), rows); err != nil {
		return fmt.Errorf("filling PostgreSQL: %w", err)
	}
	return nil
}
