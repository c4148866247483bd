package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/rebuild"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

func (m *Main) rebuildCommand() *cobra.Command {
	var undo, drop bool
	cmd := &cobra.Command{
		Use: "rebuild [PROJECTION…]", Short: "Rebuild the read tables from the log and exchange them in one transaction",
		Long: `Rebuild the read tables from the log as shadow tables, and exchange them with those in use in one transaction. Until then
the tables in use are readable and current, and no restart is needed: the projector continues in the new ones. The only
projection is "tables", which is also the default.

  scrip rebuild                           exchange the tables in use for new ones; the old ones become the previous ones
  scrip rebuild --undo                    exchange the previous tables back, and catch them up; a second undo reverses it
  scrip rebuild --drop-previous           drop the previous tables, and filled ones that were not exchanged
  scrip rebuild --until 2026-11-26T18:00:00Z --schema yesterday
                                          a copy as of that time in another schema, for analysts to read; drop it when you are
                                          done

A server with the role projector does it. ` + onServer + `

A rebuild that fails before the exchange, or whose server dies, does not change the tables in use; run it again. If the
new tables were filled by then, they are kept and it goes on with them, else it cleans up and starts from the beginning.
While commands wait to be decided, or the tables in use lag, it pauses between batches for half of the time. It takes up
to 50 MiB of that server's memory for each of its loaders, at most four; GOMEMLIMIT of the server is a limit for all
that it does.

Schema scrip has views and functions, which are replaced: rights, and the views and functions that you made of them,
stay. Long queries keep the tables that they began with, and are waited for, about a minute. Tables in
use that cannot be written, for a trigger, row security or another owner, are replaced and dropped: then there is
nothing to undo.

Tables of an older format are replaced, those of a newer one are refused; --undo and --drop-previous refuse both.

It needs the rights of the owner of schema scrip, and space for a second set of tables (a third, while there are previous
ones): if PostgreSQL runs on this machine, the free space is checked first.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused: nothing was started. Refused with -o json, it prints
{"status":"refused","refusal":"not_begun","message":…}.`,
	}
	idFlag(cmd, false)
	request, _ := m.actionFlags(cmd, "rebuild.start")
	cmd.Flags().BoolVar(&undo, "undo", false, "exchange the previous tables back")
	cmd.Flags().BoolVar(&drop, "drop-previous", false, "drop the previous tables, and filled ones that were not exchanged")
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		for _, name := range given {
			if name != "tables" {
				return cli.Usagef("there is no projection %q to rebuild; there is %q", name, "tables")
			}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		name, copying := "rebuild.start", request["schema"] != nil || request["until"] != nil
		switch {
		case undo && drop, copying && (undo || drop):
			return cli.Usagef("rebuild takes one of --undo, --drop-previous and --schema")
		case undo:
			name = "rebuild.undo"
		case drop:
			name = "rebuild.drop"
		}
		return m.run(cmd, name, request)
	}
	return cmd
}

func (m *Main) verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify", Short: "Compare the read tables with the log", Args: cli.NoArgs,
		Long: `Compare the read tables with the log: fold the log up to the tables' checkpoint into other tables (dropped at
the end), compare digests per table and campaign in one database snapshot, then the rows of digests that differ.
It finds any changed, missing or extra row in any table, a checkpoint ahead of the log, and a log that lost its end.
Without --campaign it also compares the definitions of indexes, constraints, the view and functions, and whether row
security hides rows. A changed row is listed with a line per changed column, and counted once; a missing table or
column, or a damaged or missing checkpoint, counts as one row.

The tables in use are only read; while they are compared, PostgreSQL keeps old versions of their rows, and for a moment
before that the projector waits. With --repair, rows that differ are replaced by those folded from the log, and nothing else is
changed: 4,096 numbers of a campaign in a transaction, in which the projector of its lane waits and others go on. If it is stopped,
what was repaired stays; run it again for the rest. A damaged checkpoint, or a missing table or column, needs ` + "`scrip rebuild`" + `.

A server with the role projector does it. ` + onServer + `

It needs the rights of the owner of schema scrip, and space for a second set of tables; with --campaign, for that campaign.

Exit codes: 0 nothing differs, or all of it was repaired; 4 differences found; 1 failed, 2 wrong usage, 3 refused.
Refused with -o json, it prints {"status":"refused","refusal":"not_begun","message":…}.`,
	}
	idFlag(cmd, false)
	request, _ := m.actionFlags(cmd, "verify.start")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return m.run(cmd, "verify.start", request) }
	return cmd
}

func (m *Main) printUndone(ops.RebuildUndone) error {
	_, err := fmt.Fprintln(m.Out, "the previous tables are in use again, and the projector catches them up; a second undo takes it back")
	return err
}

func (m *Main) printDropped(r ops.PreviousDropped) error {
	text := "only the tables in use are left, the others are dropped"
	if !r.Dropped {
		text = "there were no tables but those in use"
	}
	_, err := fmt.Fprintln(m.Out, text)
	return err
}

// printRebuild prints the result of a rebuild or a copy.
func (m *Main) printRebuild(r rebuild.Result) error {
	rate := float64(r.Events) / max(r.Took.Seconds(), 0.001)
	fmt.Fprintf(m.Out, "%s events in %s, %s a second (loading %s, indexing %s)\n", grouped(r.Events), r.Took.Round(time.Millisecond),
		grouped(uint64(rate)), r.Loaded.Round(time.Millisecond), r.Indexed.Round(time.Millisecond))
	for _, note := range r.Notes {
		fmt.Fprintln(m.Out, note)
	}
	if r.Schema != "scrip" {
		_, err := fmt.Fprintf(m.Out, "the copy is in schema %s and does not follow the log; DROP SCHEMA %[1]s, %[1]s_rows CASCADE removes it\n", r.Schema)
		return err
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
	text := "the new tables are in use; `scrip rebuild --undo` takes it back, `--drop-previous` drops the previous ones"
	if r.Unwritable != "" {
		text = "the new tables are in use; those before could not be written and are dropped: " + r.Unwritable
	}
	_, err := fmt.Fprintln(m.Out, text)
	return err
}

// printVerified prints the report.
func (m *Main) printVerified(r rebuild.Report) error {
	var rows [][]string
	for _, t := range r.Tables {
		verdict := "equal"
		if len(t.Groups) > 0 {
			verdict = "DIFFERS"
		}
		rows = append(rows, []string{t.Table, grouped(uint64(t.Rows)), grouped(uint64(t.Expected)), fmt.Sprint(t.Changed), fmt.Sprint(t.Missing),
			fmt.Sprint(t.TooMany), verdict})
	}
	if err := cli.Table(m.Out, "TABLE ROWS EXPECTED CHANGED MISSING TOO-MANY DIGEST", rows); err != nil {
		return err
	}
	if len(r.Differences) > 0 {
		rows = rows[:0]
		for _, d := range r.Differences {
			rows = append(rows, []string{d.Table, orText(d.Key, "-"), orText(d.Column, "-"), d.Problem, shown(d.Expected), shown(d.Found)})
		}
		fmt.Fprintln(m.Out)
		if err := cli.Table(m.Out, "TABLE KEY COLUMN PROBLEM EXPECTED FOUND", rows); err != nil {
			return err
		}
		fmt.Fprintf(m.Out, "\nrows that differ: %d, listed: %d\n", r.Total, r.Listed)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(m.Out, note)
	}
	if len(r.Repaired) > 0 {
		fmt.Fprintf(m.Out, "repaired: %s\n", strings.Join(r.Repaired, ", "))
	}
	_, err := fmt.Fprintf(m.Out, "%s events folded and compared in %s\n", grouped(r.Events), r.Took.Round(time.Millisecond))
	return err
}

// shown is a value of a row: quoted if it has white space, cut if it is long.
func shown(v *string) string {
	if v == nil {
		return "-"
	}
	s := wire.Shorten(*v, 60)
	if s == "" || strings.ContainsAny(s, "\n\t\r ") {
		return fmt.Sprintf("%q", s)
	}
	return s
}
