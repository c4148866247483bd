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

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func tablesCommand() *cobra.Command {
	return measurement(&cobra.Command{
		Use: "tables", Short: "Measure live projection, rebuild and replay beside bare COPY and bare reads",
		Long: `Fill a log with --n coupons over a thousand campaigns and measure: the live projection catching up, scrip rebuild of all
tables, scrip replay to NDJSON; beside them COPY of the same rows with the same indexes made after it, and a bare consumer
of the same messages. At last the tables are verified against the log. Only scrip and its PostgreSQL are started.`,
	}, 1_000_000, nil, func(ctx context.Context, o options, done func(report.Result) error) error {
		r := &report.Tables{Head: o.head("tables", o.n)}
		if err := o.with(ctx, recipes[:1], func(b *bench) error { return o.tables(ctx, b, r) }); err != nil {
			return err
		}
		return done(r)
	})
}

// tableCampaigns are so many campaigns in the log.
const tableCampaigns = 1000

// tables fills a log and measures the read side on it.
//
//	claims ── lag ──> live projection catches up
//	log ─────────────> scrip rebuild          beside COPY of the same rows into a table without indexes, and its indexes
//	log ─────────────> scrip replay           beside a bare consumer of the same messages
func (o options) tables(ctx context.Context, b *bench, r *report.Tables) error {
	s, w := b.scrip, growing
	r.Settings = []string{s.settings()}
	w.campaigns = min(tableCampaigns, o.n)
	p := emptyPlan(w, "tables", o.n, o.n).spread(func(i int) int { return i % w.campaigns })
	if err := s.create(ctx, p); err != nil {
		return err
	}
	before, err := s.projected(ctx)
	if err != nil {
		return err
	}
	j, err := openScrip(ctx, b, p)
	if err != nil {
		return err
	}
	defer j.close()
	d, err := drive(ctx, j, p.n, settleWithin)
	if err != nil {
		return err
	}
	if _, err := tallyOf(p, d.answers); err != nil {
		return err
	}
	filled, err := s.projected(ctx)
	if err != nil {
		return err
	}
	started := time.Now()
	if err := s.settle(ctx); err != nil {
		return err
	}
	live := report.Step{Name: "live projection, catching up", Seconds: time.Since(started).Seconds()}
	after, err := s.projected(ctx)
	if err != nil {
		return err
	}
	live.Lines, r.Lines = after-filled, after-before+len(p.names)
	r.Rows = append(r.Rows, live)

	program := func(args ...string) func(*report.Step) error {
		return func(step *report.Step) error {
			step.Lines = r.Lines
			return s.program(ctx, step, args...)
		}
	}
	for _, step := range []struct {
		report.Step
		do func(*report.Step) error
	}{
		{report.Step{}, func(step *report.Step) error { return s.bareRead(ctx, step) }}, // brings the files into memory, for all steps
		{report.Step{Name: bareRead}, func(step *report.Step) error { return s.bareRead(ctx, step) }},
		{report.Step{Name: "scrip replay, NDJSON", Bare: bareRead}, program("replay", "--out", filepath.Join(b.dir, "replay.ndjson"))},
		{report.Step{Name: bareCopy}, func(step *report.Step) error { return s.bareCopy(ctx, b.dir, step) }},
		{report.Step{Name: "scrip rebuild", Bare: bareCopy}, program("rebuild")},
		{report.Step{Name: "scrip verify"}, program("verify")},
	} {
		if err := step.do(&step.Step); err != nil {
			return err
		}
		if step.Name != "" {
			r.Rows = append(r.Rows, step.Step)
			o.printf("tables: %s: %s lines a second", step.Name, report.Thousands(step.Rate()))
		}
	}
	return nil
}

// projected is how many event lines the projector has applied since it started.
func (s *scripServer) projected(ctx context.Context) (int, error) {
	n, err := s.metric(ctx, "scrip_projection_events_total")
	return int(n), err
}

// program runs a command of scrip, and completes a step with its time, and the memory of the process that does the work.
func (s *scripServer) program(ctx context.Context, step *report.Step, args ...string) error {
	cmd := exec.CommandContext(ctx, s.binary, append(args, "--data", s.data())...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	started := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	worker := cmd.Process.Pid
	if args[0] != "replay" { // a job of the server
		worker = s.desc.PID
	}
	watch := process.StartMeter(worker)
	err := cmd.Wait()
	step.Seconds, step.Memory = time.Since(started).Seconds(), watch.Stop().Memory
	if err != nil {
		return fmt.Errorf("scrip %s: %w: %s", strings.Join(args, " "), err, output.String())
	}
	return nil
}

const (
	bareRead = "bare consumer"
	bareCopy = "bare COPY, then indexes"
)

// bareRead reads all event messages of all lanes with plain consumers, one after the other, and counts their lines.
func (s *scripServer) bareRead(ctx context.Context, step *report.Step) error {
	started := time.Now()
	err := s.tail(ctx, topology.EvtStream, make([]uint64, s.desc.Lanes), func(m jetstream.Msg, _ time.Time) error {
		step.Lines += bytes.Count(m.Data(), []byte{'\n'})
		return nil
	})
	step.Seconds = time.Since(started).Seconds()
	return err
}

// bareCopy copies what claims say into an empty table, from a file, and then makes the same indexes.
func (s *scripServer) bareCopy(ctx context.Context, dir string, step *report.Step) error {
	var tables string // their schema
	if err := s.db.QueryRow(ctx, "SELECT live::text FROM scrip_meta.format").Scan(&tables); err != nil {
		return err
	}
	table := tables + ".coupon_claim"
	file, err := os.Create(filepath.Join(dir, "rows"))
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	out := bufio.NewWriterSize(file, 1<<20)
	tag, err := s.db.PgConn().CopyTo(ctx, out, "COPY (SELECT r.* FROM "+table+" r JOIN "+tables+".segment g USING (segment) WHERE g.merged_at IS NULL) TO STDOUT (FORMAT binary)")
	if err = errors.Join(err, out.Flush()); err != nil {
		return err
	}
	step.Lines = int(tag.RowsAffected())
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	rows, err := s.db.Query(ctx, `SELECT replace(indexdef, $1 || '.coupon_claim_0', 'bare.coupon_claim') FROM pg_indexes WHERE schemaname = $1 AND tablename = 'coupon_claim_0'`, tables)
	if err != nil {
		return err
	}
	indexes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if _, err := s.db.Exec(ctx, `CREATE SCHEMA bare; SET synchronous_commit = off`); err != nil {
		return err
	}
	started := time.Now()
	if _, err := s.db.Exec(ctx, `CREATE TABLE bare.coupon_claim (LIKE `+table+`)`); err != nil {
		return err
	}
	if _, err := s.db.PgConn().CopyFrom(ctx, bufio.NewReaderSize(file, 1<<20), "COPY bare.coupon_claim FROM STDIN (FORMAT binary)"); err != nil {
		return err
	}
	for _, def := range indexes {
		if _, err := s.db.Exec(ctx, def); err != nil {
			return err
		}
	}
	step.Seconds = time.Since(started).Seconds()
	_, err = s.db.Exec(ctx, `DROP SCHEMA bare CASCADE`)
	return err
}
