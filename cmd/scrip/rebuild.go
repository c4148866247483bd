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

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/projections/rebuild"
)

// rebuildMemory is what a rebuild or verification may use, whatever the log's size. The collector keeps to it; GOMEMLIMIT
// says otherwise.
const rebuildMemory = 400 << 20

func (m *Main) rebuildCommand() *cobra.Command {
	var until wire.Instant
	var into, postgres string
	var undo, drop, dropDependents bool
	cmd := &cobra.Command{
		Use: "rebuild [PROJECTION…]", Short: "Fill the read tables anew from the log, beside those in use, and exchange them",
		Long: `Fill the read tables anew from the log, beside those in use, and exchange them in one transaction. Those in use serve
and are kept up to date meanwhile, and nothing needs to be restarted: the projector goes on in the new ones. The only
projection is "tables", which is also what is meant when none is named.

  scrip rebuild                           new tables in the place of those in use, which are put aside as scrip_previous
  scrip rebuild --undo                    the ones put aside come back, and are caught up; undone twice, nothing has changed
  scrip rebuild --drop-previous           what was put aside is removed
  scrip rebuild --until 2026-11-26T18:00:00Z --schema yesterday
                                          a copy as of that time in a schema of its own; drop it when you are done

Killed or failed at any point before the exchange, the tables in use are untouched; run it again, it cleans up and starts
over. Two at once: the second is refused. While commands wait to be decided, or the tables in use lag, it pauses between
batches for half of the time.

What others made on the tables is kept: rights, default privileges, indexes, views and functions, and what lies in schema
scrip itself. What cannot be kept (materialized views, foreign keys, triggers, publications, added columns) is found before
the work begins: it is listed and the rebuild refused, unless --drop-dependents lets it stay with the tables put aside.

Tables that another version of scrip made are replaced only if they are older and no projector is at work on them; --undo
and --drop-previous refuse them. To migrate them in place, start the projector (serve) of the new version.

It needs the rights of the owner of schema scrip, and room for a second set of tables (a third, while there are previous
ones): where PostgreSQL runs on this machine that is looked at first.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused: nothing was begun. Refused with -o json, it prints
{"status":"refused","refusal":"not_begun","message":…}.`,
	}
	unusedIDFlag(cmd)
	f := cmd.Flags()
	f.Var(m.instant(&until, false), "until", "copy the tables as of this time; needs --schema")
	f.StringVar(&into, "schema", "", "copy into a schema of this `NAME` and leave those in use alone")
	f.BoolVar(&undo, "undo", false, "put the previous tables back")
	f.BoolVar(&drop, "drop-previous", false, "remove the previous tables")
	f.BoolVar(&dropDependents, "drop-dependents", false, "go on although something that others made on the tables cannot be kept")
	postgresFlag(cmd, &postgres)
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		for _, name := range given {
			if name != projector.Projection {
				return usagef("there is no projection %q to rebuild; there is %q", name, projector.Projection)
			}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		copying := cmd.Flags().Changed("schema")
		switch {
		case until != 0 && !copying:
			return usagef("rebuild --until needs --schema NAME, where the copy goes")
		case copying && (undo || drop), undo && drop:
			return usagef("rebuild takes one of --undo, --drop-previous and --schema")
		case copying:
			if err := rebuild.CheckName(into); err != nil {
				return usagef("--schema %q: %w", into, err)
			}
		}
		return m.onTables(cmd.Context(), rebuild.Options{Who: "scrip rebuild", DropDependents: dropDependents}, postgres, func(ctx context.Context, s *rebuild.Session, _ jetstream.JetStream) error {
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
	cmd.Flags().StringVar(into, "postgres", "", "`URL` of the database with the read tables; where the server was found by scrip.json it is known")
	f := cmd.Flags().Lookup("postgres")
	f.Annotations = map[string][]string{variableMark: {variable(f.Name)}}
}

// onTables runs something that works on log and tables at once, and shows how far it is.
func (m *Main) onTables(ctx context.Context, opts rebuild.Options, postgres string, work func(context.Context, *rebuild.Session, jetstream.JetStream) error) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(rebuildMemory)
	}
	s, err := m.connect()
	if err != nil {
		return err
	}
	defer s.close()
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
	opts.Progress, opts.Logger = show.tell, slog.New(slog.NewTextHandler(m.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	session, err := rebuild.Open(ctx, postgres, js, log, opts)
	if err == nil {
		defer session.Close()
		err = work(ctx, session, js)
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
		return m.printJSON(map[string]any{"undone": true, "left_on_previous": left})
	}
	fmt.Fprintln(m.Out, "the previous tables are back, and are being caught up; those of the rebuild are put aside in their place")
	m.printLeft(left)
	return nil
}

func (m *Main) dropPrevious(ctx context.Context, s *rebuild.Session) error {
	dropped, err := s.DropPrevious(ctx)
	if err != nil {
		return err
	}
	if m.global.output == outputJSON {
		return m.printJSON(map[string]any{"dropped": dropped})
	}
	text := "the previous tables are removed"
	if !dropped {
		text = "there were no previous tables"
	}
	fmt.Fprintln(m.Out, text)
	return nil
}

// printRebuild says what was done.
func (m *Main) printRebuild(r rebuild.Result, copied bool) error {
	if m.global.output == outputJSON {
		return m.printJSON(r)
	}
	rate := float64(r.Events) / max(r.Took.Seconds(), 0.001)
	fmt.Fprintf(m.Out, "%s events in %s, %s a second (loading %s, indexing %s)\n", grouped(r.Events), r.Took.Round(time.Millisecond),
		grouped(uint64(rate)), r.Loaded.Round(time.Millisecond), r.Indexed.Round(time.Millisecond))
	for _, note := range r.Notes {
		fmt.Fprintln(m.Out, note)
	}
	if copied {
		fmt.Fprintf(m.Out, "the copy is in schema %s; nobody keeps it up to date: DROP SCHEMA %s CASCADE removes it\n", r.Schema, r.Schema)
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
		if err := m.printTable("TABLE BEFORE NOW DIGEST", rows); err != nil {
			return err
		}
	}
	fmt.Fprintln(m.Out, "the new tables are in use; the previous ones are in schema scrip_previous: `scrip rebuild --undo` brings them back, `--drop-previous` removes them")
	m.printLeft(r.Left)
	return nil
}

func (m *Main) printLeft(left []string) {
	if len(left) > 0 {
		fmt.Fprintf(m.Out, "these stay with the tables put aside and are dropped with them: %s\n", strings.Join(left, "; "))
	}
}

// grouped writes 1,234,567.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// rebuildProgress shows a person a bar with events a second and the time left, and a file a line per phase.
type rebuildProgress struct {
	m      *Main
	phase  rebuild.Phase
	bar    *bar
	since  time.Time
	events uint64 // when the phase began
}

// tell is rebuild.Options.Progress.
func (p *rebuildProgress) tell(now rebuild.Progress) {
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
