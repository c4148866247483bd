package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/rebuild"
)

// rebuildMemory limits a rebuild or verification, in bytes, for a log of any size. It is Go's soft memory limit; the
// variable GOMEMLIMIT replaces it.
const rebuildMemory = 400 << 20

func (m *Main) rebuildCommand() *cobra.Command {
	var until wire.Instant
	var into, postgres string
	var undo, drop, dropDependents bool
	cmd := &cobra.Command{
		Use: "rebuild [PROJECTION…]", Short: "Rebuild the read tables from the log and exchange them in one transaction",
		Long: `Rebuild the read tables from the log as shadow tables, and exchange them with those in use in one transaction. Meanwhile
the tables in use are readable and current, and no restart is needed: the projector continues in the new ones. The only
projection is "tables", which is also the default.

  scrip rebuild                           exchange the tables in use for new ones; the old ones become scrip_previous
  scrip rebuild --undo                    exchange the previous tables back, and catch them up; a second undo reverses it
  scrip rebuild --drop-previous           drop the previous tables
  scrip rebuild --until 2026-11-26T18:00:00Z --schema yesterday
                                          a copy as of that time in another schema; drop it when you are done

A rebuild that is killed or fails before the exchange does not change the tables in use; run it again, it cleans up and
starts from the beginning. A second concurrent rebuild is refused. While commands wait to be decided, or the tables in use
lag, it pauses between batches for half of the time.

What you added to the tables is kept: rights, default privileges, indexes, views and functions, and other objects in schema
scrip. What cannot be kept (materialized views, foreign keys, triggers, publications, added columns) is found before the
rebuild begins: it is listed and the rebuild refused, unless --drop-dependents leaves it with the previous tables.

Tables of an older format are replaced, those of a newer one are refused; --undo and --drop-previous refuse both.

It needs the rights of the owner of schema scrip, and space for a second set of tables (a third, while there are previous
ones): if PostgreSQL runs on this machine, the free space is checked first.
` + needsServers + `

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused: nothing was begun. Refused with -o json, it prints
{"status":"refused","refusal":"not_begun","message":…}.`,
	}
	unusedIDFlag(cmd)
	f := cmd.Flags()
	f.Var(m.instant(&until, false), "until", "copy the tables as of this time; needs --schema")
	f.StringVar(&into, "schema", "", "copy into a schema of this `NAME` and do not change the tables in use")
	f.BoolVar(&undo, "undo", false, "exchange the previous tables back")
	f.BoolVar(&drop, "drop-previous", false, "drop the previous tables")
	f.BoolVar(&dropDependents, "drop-dependents", false, "continue although objects that you added to the tables cannot be kept")
	postgresFlag(cmd, &postgres)
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		for _, name := range given {
			if name != fill.Projection {
				return cli.Usagef("there is no projection %q to rebuild; there is %q", name, fill.Projection)
			}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		copying := cmd.Flags().Changed("schema")
		switch {
		case until != 0 && !copying:
			return cli.Usagef("rebuild --until needs --schema NAME for the copy")
		case copying && (undo || drop), undo && drop:
			return cli.Usagef("rebuild takes one of --undo, --drop-previous and --schema")
		case copying:
			if err := rebuild.CheckName(into); err != nil {
				return cli.Usagef("--schema %q: %w", into, err)
			}
		}
		return m.onTables(cmd.Context(), rebuild.Options{Who: "scrip rebuild", DropDependents: dropDependents}, postgres, func(ctx context.Context, s *rebuild.Session) error {
			switch {
			case undo:
				return m.undoRebuild(ctx, s)
			case drop:
				return m.dropPrevious(ctx, s)
			case copying:
				var at time.Time
				if until != 0 {
					at = until.Time()
				}
				result, err := s.Copy(ctx, into, at)
				if err != nil {
					return err
				}
				return m.printRebuild(result, true)
			}
			result, err := s.Rebuild(ctx)
			if err != nil {
				return err
			}
			return m.printRebuild(result, false)
		})
	}
	return cmd
}

func postgresFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "postgres", "", "`URL` of the database with the read tables (default: that of scrip.json)")
	cli.WithVariable(cmd.Flags(), "postgres")
}

// onTables runs work that needs the log and the tables, and shows its progress.
func (m *Main) onTables(ctx context.Context, opts rebuild.Options, postgres string, work func(context.Context, *rebuild.Session) error) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(rebuildMemory)
	}
	s, err := m.connect()
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.ofServers(ctx); err != nil {
		return err
	}
	if postgres, err = tablesURL(postgres, s.server); err != nil {
		return err
	}
	finding, cancel := context.WithTimeout(ctx, m.global.timeout)
	defer cancel()
	js, log, err := s.log(finding)
	if err != nil {
		return err
	}
	show := &rebuildProgress{m: m}
	defer show.end()
	opts.Progress, opts.Logger = show.update, slog.New(slog.NewTextHandler(m.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	session, err := rebuild.Open(ctx, postgres, js, log, opts)
	if err == nil {
		defer session.Close()
		err = work(ctx, session)
	}
	show.end()
	if errors.Is(err, rebuild.ErrRefused) {
		return m.refuse("not_begun", "%s", err)
	}
	return err
}

func (m *Main) undoRebuild(ctx context.Context, s *rebuild.Session) error {
	left, err := s.Undo(ctx)
	if err != nil {
		return err
	}
	if m.global.output == outputJSON {
		return cli.JSON(m.Out, map[string]any{"undone": true, "left_on_previous": left})
	}
	fmt.Fprintln(m.Out, "the previous tables are in use again, and the projector catches them up; those of the rebuild are in schema scrip_previous")
	m.printLeft(left)
	return nil
}

func (m *Main) dropPrevious(ctx context.Context, s *rebuild.Session) error {
	dropped, err := s.DropPrevious(ctx)
	if err != nil {
		return err
	}
	if m.global.output == outputJSON {
		return cli.JSON(m.Out, map[string]any{"dropped": dropped})
	}
	text := "the previous tables are dropped"
	if !dropped {
		text = "there were no previous tables"
	}
	fmt.Fprintln(m.Out, text)
	return nil
}

// printRebuild prints the result.
func (m *Main) printRebuild(r rebuild.Result, copied bool) error {
	if m.global.output == outputJSON {
		return cli.JSON(m.Out, r)
	}
	rate := float64(r.Events) / max(r.Took.Seconds(), 0.001)
	fmt.Fprintf(m.Out, "%s events in %s, %s a second (loading %s, indexing %s)\n", grouped(r.Events), r.Took.Round(time.Millisecond),
		grouped(uint64(rate)), r.Loaded.Round(time.Millisecond), r.Indexed.Round(time.Millisecond))
	for _, note := range r.Notes {
		fmt.Fprintln(m.Out, note)
	}
	if copied {
		fmt.Fprintf(m.Out, "the copy is in schema %s and does not follow the log; DROP SCHEMA %s CASCADE removes it\n", r.Schema, r.Schema)
		return nil
	}
	if r.NotCompared != "" {
		fmt.Fprintf(m.Out, "not compared with the tables before: %s\n", r.NotCompared)
	} else {
		var rows [][]string
		for _, t := range r.Tables {
			verdict, before := "equal", grouped(uint64(max(t.Before, 0)))
			if !t.Equal {
				verdict = "DIFFERED"
			}
			if t.Before < 0 {
				before = "missing"
			}
			rows = append(rows, []string{t.Table, before, grouped(uint64(t.After)), verdict})
		}
		if err := cli.Table(m.Out, "TABLE BEFORE NOW DIGEST", rows); err != nil {
			return err
		}
	}
	fmt.Fprintln(m.Out, "the new tables are in use; the previous ones are in schema scrip_previous: `scrip rebuild --undo` exchanges them back, `--drop-previous` drops them")
	m.printLeft(r.Left)
	return nil
}

func (m *Main) printLeft(left []string) {
	if len(left) > 0 {
		fmt.Fprintf(m.Out, "these stay with the previous tables and are dropped with them: %s\n", strings.Join(left, "; "))
	}
}

// grouped formats a number as 1,234,567.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// rebuildProgress shows a bar with events a second and the time left on a terminal, else a line per phase.
type rebuildProgress struct {
	m      *Main
	phase  rebuild.Phase
	bar    *bar
	since  time.Time
	events uint64 // when the phase began
}

// update is rebuild.Options.Progress.
func (p *rebuildProgress) update(now rebuild.Progress) {
	if now.Phase != p.phase {
		p.end()
		p.phase, p.since, p.events = now.Phase, time.Now(), now.Events
		if !p.m.TerminalErr {
			fmt.Fprintln(p.m.Err, now.Phase)
			return
		}
	}
	if !p.m.TerminalErr {
		return
	}
	done, total := int64(now.Messages), int64(now.TotalMessages)
	if now.Phase == rebuild.Indexing {
		done, total = int64(now.Indexes), int64(now.TotalIndexes)
	}
	if p.bar == nil {
		p.bar = p.m.steps(string(now.Phase), int(total))
	}
	if !p.bar.shown() {
		return
	}
	text := string(now.Phase)
	if now.Phase == rebuild.Loading || now.Phase == rebuild.CatchingUp {
		text += fmt.Sprintf(" %s events/s", grouped(uint64(float64(now.Events-min(p.events, now.Events))/max(time.Since(p.since).Seconds(), 0.1))))
	}
	if now.Yielding {
		text += ", yielding to live traffic"
	}
	p.bar.set(text, min(done, total), total)
}

func (p *rebuildProgress) end() {
	if p.bar != nil {
		p.bar.clear()
	}
	p.bar, p.phase = nil, ""
}
