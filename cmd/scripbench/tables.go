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
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

func tablesCommand() *cobra.Command {
	return measurement(&cobra.Command{
		Use: "tables", Short: "Measure lag, look-ups, rebuild and replay beside bare COPY",
		Long: `Fill a log with --n coupons over a thousand campaigns and measure: look-ups meanwhile, the live projection catching up,
scrip rebuild of all tables, scrip replay to NDJSON; beside them COPY of the same rows, with the same indexes made after it or
with the key alone. At last the tables are verified against the log. Only scrip and its PostgreSQL are started.`,
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
//	claims ── lag ──> live projection catches up, look-ups beside
//	log ─────────────> scrip rebuild          beside COPY of the same rows into a table without indexes, and its indexes
//	log ─────────────> scrip replay
func (o options) tables(ctx context.Context, b *bench, r *report.Tables) error {
	s, w := b.scrip, growing
	r.Settings = []string{s.settings()}
	w.campaigns = min(tableCampaigns, o.n)
	p := emptyPlan(w, "tables", o.n, o.n).spread(func(i int) int { return i % w.campaigns })
	if err := s.create(ctx, p); err != nil {
		return err
	}
	j, err := openScrip(ctx, b, p)
	if err != nil {
		return err
	}
	defer j.close()
	beside, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	g.Go(func() (err error) { r.Rows, err = s.lookups(beside, p); return err })
	d, err := drive(ctx, j, p.n, settleWithin)
	stop()
	if err := errors.Join(err, g.Wait()); err != nil {
		return err
	}
	r.Rows = append(r.Rows, report.Step{Name: "claims", Lines: p.n, Seconds: d.took.Seconds()})
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
	live.Lines, r.Lines = after-filled, after
	r.Rows = append(r.Rows, live)
	if err := s.db.QueryRow(ctx, diskSQL).Scan(&r.Disk); err != nil {
		return err
	}
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
		{report.Step{Name: "scrip replay, NDJSON"}, program("replay", "--out", filepath.Join(b.dir, "replay.ndjson"))},
		{report.Step{Name: bareKeys}, func(step *report.Step) error { return s.bareCopy(ctx, b.dir, step) }},
		{report.Step{Name: bareCopy}, func(step *report.Step) error { return s.bareCopy(ctx, b.dir, step) }},
		{report.Step{Name: "scrip rebuild", Bare: bareCopy}, program("rebuild")},
		{report.Step{Name: "scrip verify"}, program("verify")},
	} {
		if err := step.do(&step.Step); err != nil {
			return err
		}
		r.Rows = append(r.Rows, step.Step)
		o.printf("tables: %s: %s lines a second", step.Name, report.Thousands(step.Rate()))
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
	bareCopy = "bare COPY, then indexes"
	bareKeys = "bare COPY, then the key"
)

// diskSQL is the size of all tables with their indexes.
const diskSQL = `SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN scrip_meta.format f ON c.relnamespace = to_regnamespace(f.live::text) WHERE c.relkind = 'r'`

// lookupPause is between two rounds of look-ups.
const lookupPause = 20 * time.Millisecond

// lookups looks coupons up, as support does, until ctx ends.
func (s *scripServer) lookups(ctx context.Context, p *plan) (rows []report.Step, err error) {
	db, err := pgx.Connect(ctx, s.desc.PostgresURL)
	if err != nil {
		return nil, err
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck
	kinds := []string{"scrip.coupon WHERE code", "scrip.coupon WHERE customer_id", "scrip.redemption WHERE order_id"}
	times := make([]*report.Latencies, len(kinds))
	rows = make([]report.Step, len(kinds))
	for i := range kinds {
		times[i], rows[i].Name = report.NewLatencies(), "beside claims, "+kinds[i]
	}
	for i := 0; natsx.Pause(ctx, lookupPause) == nil; i++ {
		values := make([]string, len(kinds)) // no order
		err := db.QueryRow(ctx, "SELECT code, customer_id FROM scrip.coupon WHERE campaign = $1 AND n = 1", p.campaign(i)).Scan(&values[0], &values[1])
		for k := 0; err == nil && k < len(kinds); k++ {
			started := time.Now()
			_, err = db.Exec(ctx, "SELECT * FROM "+kinds[k]+" = $1", values[k])
			times[k].Record(time.Since(started), 1)
			rows[k].Lines, rows[k].Seconds = rows[k].Lines+1, rows[k].Seconds+time.Since(started).Seconds()
			rows[k].P99 = times[k].Result().P99
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, err
		}
	}
	return rows, nil
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
	if step.Name == bareKeys {
		indexes = slices.DeleteFunc(indexes, func(def string) bool { return !strings.Contains(def, "UNIQUE") })
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
