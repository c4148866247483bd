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

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TablesReport is how fast the read side makes tables and files of the log, beside what the same data costs bare.
//
//	claims ── lag ──> live projection catches up
//	log ─────────────> scrip rebuild          beside COPY of the same rows into a table without indexes, and its indexes
//	log ─────────────> scrip replay           beside a bare consumer of the same messages
type TablesReport struct {
	Settings string `json:"settings"`
	Load     string `json:"load"`
	Coupons  int    `json:"coupons"`
	Lines    int    `json:"lines"` // events in the log
	// Rows of work that were timed.
	Rows []TablesRow `json:"rows"`
	// Beside is what claims were like before and during the rebuild, at an even pace.
	Before Latency `json:"claims_before"`
	During Latency `json:"claims_during"`
	Rate   float64 `json:"claims_rate"`
}

// TablesRow is one kind of work.
type TablesRow struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Lines   int     `json:"lines"`
	// Bare is the work without scrip that it is compared with, "" = none.
	Bare   string `json:"bare,omitempty"`
	Memory int64  `json:"memory_bytes,omitempty"`
}

func (r TablesRow) rate() float64 { return float64(r.Lines) / max(r.Seconds, 1e-9) }

func tablesCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use: "tables", Short: "Measure live projection, rebuild and replay beside bare COPY and bare reads", Args: cobra.NoArgs,
		Long: `Fill a log with --n coupons over a thousand campaigns and measure what is made of it: the live projection catching up,
scrip rebuild of all tables, scrip replay to NDJSON; beside them COPY of the same rows with the same indexes made after
it, and a bare consumer of the same messages. Then all tables are emptied and rebuilt while claims come at an even pace, and at
last verified against the log. Only scrip and its PostgreSQL are started.`,
	}
	f.add(cmd.Flags(), string(always))
	f.callers, f.runs, f.limit = 1, 1, settleWithin
	cmd.Flags().Lookup("n").Usage = "coupons claimed; 0 = 1,000,000"
	cmd.Flags().DurationVar(&f.beside, "beside", 10*time.Second, "how long the latency of claims is looked at before the rebuild beside them")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := f.readyForOne(cmd, "tables are")
		if err != nil {
			return err
		}
		if f.n == 0 {
			f.n = 1_000_000
		}
		report := newReport(f.base)
		if report.Projections, err = f.tables(cmd.Context(), d); err != nil {
			return err
		}
		return f.show(cmd, report, func(w io.Writer) error { return tablesText(w, *report.Projections) })
	}
	return cmd
}

// tableCampaigns are so many campaigns in the log.
const tableCampaigns = 1000

func (o options) tables(ctx context.Context, d durability) (r *TablesReport, err error) {
	err = o.alone(ctx, d, func(st *stand) error {
		r, err = o.project(ctx, st)
		return err
	})
	return r, err
}

// project fills a log and measures what is made of it.
func (o options) project(ctx context.Context, st *stand) (r *TablesReport, err error) {
	s := st.scrip
	r = &TablesReport{Settings: s.settings(), Load: loadAverage(), Coupons: o.n}
	say := func(row TablesRow) {
		r.Rows = append(r.Rows, row)
		fmt.Fprintf(o.progress, "tables: %s: %s lines a second\n", row.Name, thousands(row.rate()))
	}

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
	j, err := recipes[0].open(ctx, st, p, 1)
	if err != nil {
		return nil, err
	}
	driven, err := drive(ctx, j, pace{n: p.n, limit: settleWithin})
	j.close()
	if err != nil {
		return nil, err
	}
	if _, err := count(p, driven.answers); err != nil {
		return nil, fmt.Errorf("a wrong answer: %w", err)
	}
	filled, err := s.projected(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	took := time.Since(began).Seconds()
	after, err := s.projected(ctx)
	if err != nil {
		return nil, err
	}
	say(TablesRow{Name: "live projection, catching up", Seconds: took, Lines: after - filled})
	r.Lines = after - before + len(p.names)

	row, err := s.bareRead(ctx)
	if err == nil {
		row, err = s.bareRead(ctx) // the first brought the files into memory, for all who follow
	}
	if err != nil {
		return nil, err
	}
	say(row)
	row, err = s.program(ctx, "scrip replay, NDJSON", r.Lines, "replay", "--out", filepath.Join(st.dir, "replay.ndjson"))
	if err != nil {
		return nil, err
	}
	row.Bare = bareRead
	say(row)
	if row, err = s.bareCopy(ctx, st.dir); err != nil {
		return nil, err
	}
	say(row)
	if row, err = s.program(ctx, "scrip rebuild", r.Lines, "rebuild"); err != nil {
		return nil, err
	}
	row.Bare = bareCopy
	say(row)
	if _, err := s.program(ctx, "", 0, "rebuild", "--drop-previous"); err != nil {
		return nil, err
	}
	row, err = o.rebuildBeside(ctx, st, r)
	if err != nil {
		return nil, err
	}
	say(row)
	row, err = s.program(ctx, "scrip verify", row.Lines, "verify")
	if err != nil {
		return nil, err
	}
	say(row)
	return r, nil
}

// besideRate is how many claims a second come while tables are rebuilt.
const besideRate = 10_000

// rebuildBeside rebuilds while claims come at an even pace, and keeps their latency before and during it.
func (o options) rebuildBeside(ctx context.Context, st *stand, r *TablesReport) (row TablesRow, err error) {
	claims := func(id string, length time.Duration, stop <-chan struct{}) (Latency, int, error) {
		p := newPlan(growing, id, int(besideRate*length.Seconds()), o.seed)
		j, err := recipes[0].open(ctx, st, p, 1)
		if err != nil {
			return Latency{}, 0, err
		}
		defer j.close()
		stream, asked := j.stream, 0
		j.stream = func(ctx context.Context, i int, done func(answer)) error {
			asked++
			return stream(ctx, i, done)
		}
		d, err := drive(ctx, j, pace{n: p.n, limit: length, rate: besideRate, stop: stop})
		return d.latency, asked, err
	}
	r.Rate = besideRate
	if r.Before, _, err = claims("quiet", o.beside, nil); err != nil {
		return row, err
	}
	// The incident: every table is emptied, the checkpoint too, and claims go on.
	const empty = `DO $$ DECLARE all_of_them text; BEGIN
		SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') INTO all_of_them FROM pg_tables WHERE schemaname = 'scrip';
		EXECUTE 'TRUNCATE ' || all_of_them; END $$`
	if _, err := st.scrip.db.Exec(ctx, empty); err != nil {
		return row, err
	}
	type claimed struct {
		l   Latency
		n   int
		err error
	}
	over, result := make(chan struct{}), make(chan claimed, 1)
	go func() {
		l, n, err := claims("meanwhile", settleWithin, over)
		result <- claimed{l, n, err}
	}()
	row, err = st.scrip.program(ctx, "scrip rebuild of emptied tables, beside claims", r.Lines+int(besideRate*o.beside.Seconds()), "rebuild")
	close(over)
	c := <-result
	r.During = c.l
	row.Lines += c.n
	return row, errors.Join(err, c.err)
}

// projected is how many event lines the projector has applied since it started.
func (s *scripServer) projected(ctx context.Context) (int, error) {
	n, err := s.metric(ctx, "scrip_projection_events_total")
	return int(n), err
}

// program runs scrip beside the server and times it.
func (s *scripServer) program(ctx context.Context, name string, lines int, args ...string) (row TablesRow, err error) {
	cmd := exec.CommandContext(ctx, s.binary, append(args, "--data", filepath.Join(filepath.Dir(s.proc.log), "data"))...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return row, err
	}
	watch := startMeter(cmd.Process.Pid)
	err = cmd.Wait()
	row = TablesRow{Name: name, Seconds: time.Since(began).Seconds(), Lines: lines}
	_, _, _, row.Memory = watch.stop()
	if err != nil {
		return row, fmt.Errorf("scrip %s: %w: %s", strings.Join(args, " "), err, said.String())
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
	for lane := range s.desc.Lanes {
		stream, err := s.js.Stream(ctx, topology.EvtStream(lane))
		if err != nil {
			return row, err
		}
		last := stream.CachedInfo().State.LastSeq
		if last == 0 {
			continue
		}
		consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
		if err != nil {
			return row, err
		}
		done := make(chan error, 1)
		consuming, err := consumer.Consume(func(m jetstream.Msg) {
			row.Lines += bytes.Count(m.Data(), []byte{'\n'})
			if meta, err := m.Metadata(); err != nil || meta.Sequence.Stream == last {
				select {
				case done <- err:
				default:
				}
			}
		})
		if err != nil {
			return row, err
		}
		select {
		case err = <-done:
		case <-ctx.Done():
			err = ctx.Err()
		}
		consuming.Stop()
		<-consuming.Closed()
		if err != nil {
			return row, err
		}
	}
	row.Seconds = time.Since(began).Seconds()
	return row, nil
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

// tablesText is the table for people.
func tablesText(w io.Writer, r TablesReport) error {
	fmt.Fprintf(w, "tables: what is made of a log of %s coupons in %s event lines\n%s\nload average before: %s\n\n",
		thousands(float64(r.Coupons)), thousands(float64(r.Lines)), r.Settings, r.Load)
	rates := map[string]float64{}
	for _, row := range r.Rows {
		rates[row.Name] = row.rate()
	}
	rows := [][]string{{"WORK", "LINES/S", "SECONDS", "MEMORY", "OF BARE", "BARE"}}
	for _, row := range r.Rows {
		of := "-"
		if bare := rates[row.Bare]; bare > 0 {
			of = fmt.Sprintf("%.2f", row.rate()/bare)
		}
		rows = append(rows, []string{row.Name, thousands(row.rate()), fmt.Sprintf("%.1f", row.Seconds), mebibytes(row.Memory), of, row.Bare})
	}
	if err := columns(w, rows); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nclaims at %s a second, p50, p99, most: %s before the last rebuild, %s during it (p99 %s)\n",
		thousands(r.Rate), latencyText(r.Before), latencyText(r.During), ratioText(float64(r.During.P99)/float64(max(1, r.Before.P99))))
	return nil
}
