package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TablesReport is how fast the read side makes tables and files from the log, beside bare work on the same data.
//
//	claims ── lag ──> live projection catches up
//	log ─────────────> scrip rebuild          beside COPY of the same rows into a table without indexes, and its indexes
//	log ─────────────> scrip replay           beside a bare consumer of the same messages
type TablesReport struct {
	Settings string      `json:"settings"`
	Load     string      `json:"load"`
	Coupons  int         `json:"coupons"`
	Lines    int         `json:"lines"` // events in the log
	Rows     []TablesRow `json:"rows"`
	// Latency of claims before and during the rebuild, at an even pace.
	Before Latency `json:"claims_before"`
	During Latency `json:"claims_during"`
	Rate   float64 `json:"claims_rate"`
}

// TablesRow is one step that was timed.
type TablesRow struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Lines   int     `json:"lines"`
	// Bare is the step without scrip that it is compared with, "" = none.
	Bare   string `json:"bare,omitempty"`
	Memory int64  `json:"memory_bytes,omitempty"`
}

func (r TablesRow) rate() float64 { return float64(r.Lines) / max(r.Seconds, 1e-9) }

func tablesCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use: "tables", Short: "Measure live projection, rebuild and replay beside bare COPY and bare reads",
		Long: `Fill a log with --n coupons over a thousand campaigns and measure: the live projection catching up, scrip rebuild of all
tables, scrip replay to NDJSON; beside them COPY of the same rows with the same indexes made after it, and a bare consumer
of the same messages. Then all tables are emptied and rebuilt while claims are sent at an even pace, and at last verified
against the log. Only scrip and its PostgreSQL are started.`,
	}
	cmd.Flags().DurationVar(&f.beside, "beside", 10*time.Second, "how long the latency of claims is measured before the rebuild beside them")
	cmd.Flags().Float64Var(&f.besideRate, "beside-rate", 10_000, "claims a second that are sent while tables are rebuilt")
	return f.command(cmd, "coupons claimed", 1_000_000, func(ctx context.Context, d durability, r *Report) (text func(io.Writer) error, err error) {
		r.Projections, err = f.tables(ctx, d)
		return func(w io.Writer) error { return tablesText(w, *r.Projections) }, err
	})
}

// tableCampaigns are so many campaigns in the log.
const tableCampaigns = 1000

func (o options) tables(ctx context.Context, d durability) (r *TablesReport, err error) {
	err = o.alone(ctx, d, func(b *bench) error {
		r, err = o.project(ctx, b)
		return err
	})
	return r, err
}

// project fills a log and measures the read side on it.
func (o options) project(ctx context.Context, b *bench) (r *TablesReport, err error) {
	s := b.scrip
	r = &TablesReport{Settings: s.settings(), Load: loadAverage(), Coupons: o.n}
	w := growing
	w.campaigns = min(tableCampaigns, o.n)
	p := spread(w, "tables", o.n, o.n, o.seed)
	if err := s.create(ctx, p); err != nil {
		return nil, err
	}
	p.created = true
	before, err := s.projected(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := o.claimAt(ctx, b, p, pace{n: p.n, limit: settleWithin}, nil, nil); err != nil {
		return nil, err
	}
	steps := []func() (TablesRow, error){
		func() (row TablesRow, err error) {
			filled, err := s.projected(ctx)
			if err != nil {
				return row, err
			}
			began := time.Now()
			if err := s.settle(ctx); err != nil {
				return row, err
			}
			took := time.Since(began).Seconds()
			after, err := s.projected(ctx)
			r.Lines = after - before + len(p.names)
			return TablesRow{Name: "live projection, catching up", Seconds: took, Lines: after - filled}, err
		},
		func() (TablesRow, error) {
			if _, err := s.bareRead(ctx); err != nil { // brings the files into memory, for all steps
				return TablesRow{}, err
			}
			return s.bareRead(ctx)
		},
		func() (TablesRow, error) {
			return s.program(ctx, TablesRow{Name: "scrip replay, NDJSON", Lines: r.Lines, Bare: bareRead}, "replay", "--out", filepath.Join(b.dir, "replay.ndjson"))
		},
		func() (TablesRow, error) { return s.bareCopy(ctx, b.dir) },
		func() (row TablesRow, err error) {
			if row, err = s.program(ctx, TablesRow{Name: "scrip rebuild", Lines: r.Lines, Bare: bareCopy}, "rebuild"); err == nil {
				_, err = s.program(ctx, TablesRow{}, "rebuild", "--drop-previous")
			}
			return row, err
		},
		func() (TablesRow, error) { return o.rebuildBeside(ctx, b, r) },
		func() (TablesRow, error) {
			return s.program(ctx, TablesRow{Name: "scrip verify", Lines: r.Rows[len(r.Rows)-1].Lines}, "verify")
		},
	}
	for _, step := range steps {
		row, err := step()
		if err != nil {
			return nil, err
		}
		r.Rows = append(r.Rows, row)
		o.printf("tables: %s: %s lines a second", row.Name, thousands(row.rate()))
	}
	return r, nil
}

// rebuildBeside rebuilds while claims are sent at an even pace, and keeps their latency before and during it.
func (o options) rebuildBeside(ctx context.Context, b *bench, r *TablesReport) (row TablesRow, err error) {
	claims := func(id string, length time.Duration, stop <-chan struct{}) (l Latency, n int, err error) {
		p := newPlan(growing, id, int(o.besideRate*length.Seconds()), o.seed)
		d, err := o.claimAt(ctx, b, p, pace{n: p.n, limit: length, rate: o.besideRate, stop: stop}, func(int) { n++ }, nil)
		return d.latency, n, err
	}
	r.Rate = o.besideRate
	if r.Before, _, err = claims("quiet", o.beside, nil); err != nil {
		return row, err
	}
	// The incident: every table is emptied, the checkpoint too, and claims continue.
	const empty = `DO $$ DECLARE all_of_them text; BEGIN
		SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') INTO all_of_them FROM pg_tables WHERE schemaname = 'scrip';
		EXECUTE 'TRUNCATE ' || all_of_them; END $$`
	if _, err := b.scrip.db.Exec(ctx, empty); err != nil {
		return row, err
	}
	over, claimed := make(chan struct{}), 0
	var g errgroup.Group
	g.Go(func() (err error) {
		r.During, claimed, err = claims("meanwhile", settleWithin, over)
		return err
	})
	row, err = b.scrip.program(ctx, TablesRow{Name: "scrip rebuild of emptied tables, beside claims", Lines: r.Lines + int(o.besideRate*o.beside.Seconds())}, "rebuild")
	close(over)
	err = errors.Join(err, g.Wait())
	row.Lines += claimed
	return row, err
}

// projected is how many event lines the projector has applied since it started.
func (s *scripServer) projected(ctx context.Context) (int, error) {
	n, err := s.metric(ctx, "scrip_projection_events_total")
	return int(n), err
}

// program runs scrip beside the server, and completes row with time and memory.
func (s *scripServer) program(ctx context.Context, row TablesRow, args ...string) (TablesRow, error) {
	cmd := exec.CommandContext(ctx, s.binary, append(args, "--data", s.data())...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return row, err
	}
	watch := startMeter(cmd.Process.Pid)
	err := cmd.Wait()
	row.Seconds, row.Memory = time.Since(began).Seconds(), watch.stop().Memory
	if err != nil {
		return row, fmt.Errorf("scrip %s: %w: %s", strings.Join(args, " "), err, output.String())
	}
	return row, nil
}

const (
	bareRead = "bare consumer"
	bareCopy = "bare COPY, then indexes"
)

// bareRead reads all event messages of all lanes with plain consumers, one after the other, and counts their lines.
func (s *scripServer) bareRead(ctx context.Context) (row TablesRow, err error) {
	row = TablesRow{Name: bareRead}
	began := time.Now()
	err = s.tail(ctx, topology.EvtStream, make([]uint64, s.desc.Lanes), func(m jetstream.Msg, _ time.Time) error {
		row.Lines += bytes.Count(m.Data(), []byte{'\n'})
		return nil
	})
	row.Seconds = time.Since(began).Seconds()
	return row, err
}

// bareCopy copies the rows of the largest table into an empty one, from a file, and then makes the same indexes.
func (s *scripServer) bareCopy(ctx context.Context, dir string) (row TablesRow, err error) {
	const table = "coupon_row"
	row = TablesRow{Name: bareCopy}
	file, err := os.Create(filepath.Join(dir, "rows"))
	if err != nil {
		return row, err
	}
	defer file.Close()
	out := bufio.NewWriterSize(file, 1<<20)
	tag, err := s.db.PgConn().CopyTo(ctx, out, "COPY scrip."+table+" TO STDOUT (FORMAT binary)")
	if err = errors.Join(err, out.Flush()); err != nil {
		return row, err
	}
	row.Lines = int(tag.RowsAffected())
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return row, err
	}
	rows, err := s.db.Query(ctx, `SELECT indexdef FROM pg_indexes WHERE schemaname = 'scrip' AND tablename = $1`, table)
	if err != nil {
		return row, err
	}
	indexes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return row, err
	}
	if _, err := s.db.Exec(ctx, `CREATE SCHEMA bare; SET synchronous_commit = off`); err != nil {
		return row, err
	}
	began := time.Now()
	if _, err := s.db.Exec(ctx, `CREATE TABLE bare.`+table+` (LIKE scrip.`+table+` INCLUDING GENERATED)`); err != nil {
		return row, err
	}
	if _, err := s.db.PgConn().CopyFrom(ctx, bufio.NewReaderSize(file, 1<<20), "COPY bare."+table+" FROM STDIN (FORMAT binary)"); err != nil {
		return row, err
	}
	for _, def := range indexes {
		if _, err := s.db.Exec(ctx, strings.Replace(def, " ON scrip.", " ON bare.", 1)); err != nil {
			return row, err
		}
	}
	row.Seconds = time.Since(began).Seconds()
	_, err = s.db.Exec(ctx, `DROP SCHEMA bare CASCADE`)
	return row, errors.Join(err, os.Remove(file.Name()))
}
