package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/projections/replay"
)

// replayFlags is the command line of `scrip replay`, as given.
type replayFlags struct {
	filter   replay.Filter
	format   string
	out      string
	name     string
	sql      string
	postgres string
	follow   bool
	reset    bool
	print    bool
	mask     string
	csv      csvKind
}

// formatPostgres is the format that is no file.
const formatPostgres = "postgres"

// standardOut stands for standard output.
const standardOut = "-"

func (m *Main) replayCommand() *cobra.Command {
	var flags replayFlags
	cmd := &cobra.Command{
		Use: "replay", Short: "Read the events again: into a file, a table, or a projection of your own", Args: noArgs,
		Long: `Read the events again: into NDJSON, CSV or Parquet, into a PostgreSQL table, or through a SQL file of yours. It only
reads the log, and disturbs nobody.

Filters can be combined; --campaign, --type, --lane, --from and --to can be given several times. Times are those of the
events, RFC 3339 or from now (-24h, +10m); --until is exclusive, positions are inclusive. Where --from or --to name lanes,
only those are read; --lane says otherwise. --customer finds also what
happened to the customer's coupons where a line does not name them; it reads lanes from their beginning.

Lanes come one after another, each in its order. A line that this version cannot read is left out, told on standard
error, and counted. At an event stream of a newer format it stops and says so.

` + maskHelp + `
Lines that quote a rejected command lose the quote, and fields that this version does not know are left out.

Formats:
  ndjson    the line as the log holds it with its place in front: {"lane":0,"sequence":12,"line":1,"type":…. The
            sequence and line that a command.rejected has of its own are called command_sequence and command_line
  csv       columns, with a heading; the last one, raw, is the whole line
  parquet   the same columns, typed; times in UTC
  postgres  the same columns, in table events of the schema --name, with the line as jsonb

A file has its name once it is complete; what is stopped, or meets a full disk, leaves nothing; what
kill -9 leaves beside it, .FILE.<hex>.partial, the next replay to the same file removes. With --name it is added
to instead: a small file beside it, FILE.NAME.replay, says how far it is, and asked again with the same name a replay
adds what is new, without losing or doubling a line, also after kill -9. --follow goes on for ever with new events; into
a file that needs a --name. Parquet knows neither, for it cannot be added to.

` + replay.SQLSyntax + `

The schema also holds the checkpoint, in the same transaction as the tables: with --follow they are live tables, and a
projection that was killed, or failed on a batch, goes on there. --reset drops the schema first. Examples come with
scrip; --print shows one:
` + examplesList(),
		Example: `  scrip replay --campaign summer --type coupon.redeemed --since -24h
  scrip replay --format parquet --out events.parquet
  scrip replay --name nightly --format csv --out all.csv          every night: adds what is new
  scrip replay --name copy --format postgres --follow             a live copy of all events, copy.events
  scrip replay --sql example:claims_by_hour --print > mine.sql
  scrip replay --sql mine.sql --follow                            a live table of your own`,
	}
	unusedIDFlag(cmd)
	m.filterFlags(cmd, &flags.filter)
	f := cmd.Flags()
	f.Var(choice(&flags.format, string(replay.NDJSON), string(replay.NDJSON), string(replay.CSV), string(replay.Parquet), formatPostgres), "format", "how events are written")
	f.StringVar(&flags.out, "out", standardOut, "`FILE` to write, - = standard output")
	f.StringVar(&flags.name, "name", "", "`NAME` under which it can be gone on with; for postgres and --sql, the schema")
	f.StringVar(&flags.sql, "sql", "", "`FILE` of a SQL projection, or "+replay.ExamplePrefix+"NAME")
	database := pflag.NewFlagSet("", pflag.ContinueOnError)
	database.StringVar(&flags.postgres, "postgres", "", "`URL` of the database for --sql and --format postgres; else the server's")
	withVariable(database) // it alone: a filter left in a variable would leave events out unseen
	f.AddFlagSet(database)
	f.BoolVar(&flags.follow, "follow", false, "go on with new events until stopped")
	f.BoolVar(&flags.reset, "reset", false, "forget what is there under this name, and begin again")
	maskFlag(cmd, &flags.mask)
	csvFlag(cmd, &flags.csv)
	f.BoolVar(&flags.print, "print", false, "print the file given by --sql, and do nothing else")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return asUsage(m.replay(cmd.Context(), cmd, &flags))
	}
	return cmd
}

func examplesList() (text string) {
	for _, name := range replay.Examples() {
		text += "  " + replay.ExamplePrefix + name + "\n"
	}
	return text
}

// asUsage turns what the package finds wrong with a setting into a word about the flag of that name.
func asUsage(err error) error {
	var wrong *replay.InvalidError
	if errors.As(err, &wrong) {
		return usagef("--%s: %s", wrong.Field, wrong.Problem)
	}
	return err
}

func (m *Main) replay(ctx context.Context, cmd *cobra.Command, flags *replayFlags) error {
	if err := flags.filter.Check(0); err != nil {
		return err
	}
	target, err := m.replayTarget(cmd, flags)
	if err != nil || target.printed {
		return err
	}
	if flags.filter.Mask, err = openMask(flags.mask); err != nil {
		return err
	}
	s, err := m.connect()
	if err != nil {
		return err
	}
	defer s.close()
	look, cancel := context.WithTimeout(ctx, m.global.timeout)
	defer cancel()
	js, log, err := s.log(look)
	if err != nil {
		return err
	}
	sink, err := target.sink(s)
	if err != nil {
		return err
	}
	progress := m.replayProgress(target.toOut)
	sum, err := replay.Run(ctx, js, log, sink, replay.Options{
		Filter: flags.filter, Follow: flags.follow, Progress: progress.show,
		Logger: slog.New(slog.NewTextHandler(m.Err, &slog.HandlerOptions{ReplaceAttr: withoutTime})),
	})
	took := progress.end()
	if err != nil {
		return err
	}
	return m.printReplayed(replayed{Status: "replayed", Summary: sum, To: target.name}, target.toOut, took)
}

// withoutTime: a person reads along.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// replayed is what a replay says in JSON when it is done.
type replayed struct {
	Status string `json:"status"`
	replay.Summary
	To string `json:"to,omitempty"`
}

// printReplayed sums up: on standard output, unless that holds the events.
func (m *Main) printReplayed(r replayed, toOut bool, took time.Duration) error {
	if toOut {
		if r.Unreadable > 0 {
			fmt.Fprintf(m.Err, "%d lines were left out: this version cannot read them\n", r.Unreadable)
		}
		return nil
	}
	if m.global.output == outputJSON {
		return m.printJSON(r)
	}
	rows := [][2]string{{r.Status, ""}, {"events", fmt.Sprint(r.Events)}, {"messages read", fmt.Sprint(r.Messages)}, {"to", r.To},
		{"took", took.Round(time.Millisecond).String()}}
	if r.Unreadable > 0 {
		rows = append(rows, [2]string{"left out", fmt.Sprintf("%d lines that this version cannot read", r.Unreadable)})
	}
	if r.Foreign > 0 {
		rows = append(rows, [2]string{"passed over", fmt.Sprintf("%d messages that scrip did not write", r.Foreign)})
	}
	return m.printFields(rows)
}
