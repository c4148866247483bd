package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/pgd"
)

// postgresServer is a PostgreSQL of its own, made and run as scrip makes its private one, with the settings that such a
// load wants: much memory, few checkpoints.
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

// commit is PostgreSQL's word for a durability.
func (d durability) commit() string {
	if d == interval {
		return "off"
	}
	return "on"
}

func (s *postgresServer) start(ctx context.Context, dir string, d durability) error {
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
		Logger: slog.New(slog.DiscardHandler),
	})
	var err error
	if s.url, err = s.cluster.Start(ctx); err != nil {
		return err
	}
	s.db, err = pgx.Connect(ctx, s.url)
	return err
}

func (s *postgresServer) settings() string {
	return fmt.Sprintf("%s, synchronous_commit %s, fsync on, shared_buffers 1GB, max_wal_size 8GB", s.binaries.Version, s.durability.commit())
}

func (s *postgresServer) pid() int { return s.cluster.PID() }

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
