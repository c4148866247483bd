package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// replayFlags is the command line of `scrip replay`.
type replayFlags struct {
	filter    replay.Filter
	format    string
	out       string
	partition string
	name      string
	sql       string
	postgres  string
	http      string
	keyFile   string
	follow    bool
	reset     bool
	print     bool
	mask      string
}

// formatPostgres is the format that is not a file.
const formatPostgres = "postgres"

// standardOut is the value of --out for standard output.
const standardOut = "-"

func (m *Main) replayCommand() *cobra.Command {
	var flags replayFlags
	cmd := &cobra.Command{
		Use: "replay", Short: "Replay events into a file, a table, or your own projection", Args: cli.NoArgs,
		Long: `Replay events into NDJSON, CSV or Parquet, into a PostgreSQL table, or through your own SQL file. It only reads the log,
and does not affect servers.

` + needsServers + ` But with the key of an
analyst (--key-file, or the variable SCRIP_KEY) it reads the same events over HTTP, from --http or the server of --data; without
the key's rights to codes and customers these are masked. Lanes, times, positions and customers are then selected here.

A replay with codes in clear is recorded in the audit stream.

Filters can be combined; --campaign, --type, --lane, --from and --to can be given several times. Times are those of the
events, RFC 3339 or from now (-24h, +10m); --until is exclusive, positions are inclusive. If --from or --to name lanes,
only these are read, unless --lane is given. --customer also finds the events of the customer's coupons that do not name
the customer; for this it reads lanes from their beginning.

Lanes are read one after another, each in order. A line that this version cannot read is skipped, reported on standard
error, and counted. An event stream of a newer format ends the replay with an error.

` + maskHelp + `
Lines that quote a rejected command lose the quote, and fields that this version does not support are left out.

Formats:
  ndjson    the line of the log with its position in front: {"lane":0,"sequence":12,"line":1,"type":…. The fields
            sequence and line of a command.rejected are renamed to command_sequence and command_line
  csv       columns, with a heading; the last one, raw, is the whole line. Texts that a spreadsheet would run as a
            formula, and those that start with a single quote, have a single quote before them
  parquet   the same columns, typed; times in UTC
  postgres  the same columns, in table events of the schema --name, with the line as jsonb

A file gets its name once it is complete; a replay that is stopped, or finds the disk full, leaves no file; the next replay
to the same file removes the .FILE.<hex>.partial that a kill -9 leaves. With --name, events are appended instead: the
checkpoint is in FILE.NAME.replay, and another replay with the same name appends the new events, each exactly once, also
after kill -9. --follow continues with new events until it is stopped; into a file it needs --name. A Parquet file cannot be
appended to, so it supports neither. With --partition day it is a data set, the directory --out with files
day=YYYY-MM-DD/NUMBER.parquet, the days of UTC: each file is complete, each replay to the same directory adds the new
events, each exactly once, also after kill -9, and --follow completes one file of the day, for all lanes, every five minutes.

` + replay.SQLSyntax() + `
The schema also holds the checkpoint, in the same transaction as the tables: with --follow they are live tables, and a
projection that was killed, or failed on a batch, continues from there. --reset drops the schema first. scrip includes
examples; --print shows one:
` + examplesList(),
		Example: `  scrip replay --campaign summer --type coupon.redeemed --since -24h
  scrip replay --format parquet --out events.parquet
  scrip replay --format parquet --partition day --out events      every night: adds new files to the directory
  scrip replay --name nightly --format csv --out all.csv          every night: appends new events
  scrip replay --name copy --format postgres --follow             a live copy of all events, copy.events
  scrip replay --sql example:claims_by_hour --print > mine.sql
  scrip replay --sql mine.sql --follow                            your own live table`,
	}
	idFlag(cmd, false)
	m.filterFlags(cmd, &flags.filter)
	f := cmd.Flags()
	f.Var(cli.Choice(&flags.format, string(replay.NDJSON), string(replay.NDJSON), string(replay.CSV), string(replay.Parquet), formatPostgres), "format", "format of the events")
	f.StringVar(&flags.out, "out", standardOut, "`FILE` to write, - = standard output")
	f.Var(cli.Choice(&flags.partition, "", "day"), "partition", "day: --out is the directory of a data set of Parquet files, one or more for each day")
	f.StringVar(&flags.name, "name", "", "`NAME` of the checkpoint, from which a later replay continues; for postgres and --sql, the schema")
	f.StringVar(&flags.sql, "sql", "", "`FILE` of a SQL projection, or "+replay.ExamplePrefix+"NAME")
	database := pflag.NewFlagSet("", pflag.ContinueOnError)
	database.StringVar(&flags.postgres, "postgres", "", "`URL` of the database for --sql and --format postgres (default: the server's)")
	database.StringVar(&flags.http, "http", "", "`URL` of a server, such as https://scrip.internal:8080, for a replay with a key (default: the one of --data)")
	cli.WithVariable(database) // only these flags: a filter in a forgotten variable would leave out events without notice
	f.AddFlagSet(database)
	f.StringVar(&flags.keyFile, "key-file", "", "`FILE` with the key of an analyst")
	f.BoolVar(&flags.follow, "follow", false, "continue with new events until stopped")
	f.BoolVar(&flags.reset, "reset", false, "delete the output of this name, and start from the beginning")
	maskFlag(cmd, &flags.mask)
	f.BoolVar(&flags.print, "print", false, "print the file given by --sql, and exit")
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

// asUsage turns an invalid field of the package into a usage error about the flag of the same name.
func asUsage(err error) error {
	var wrong *replay.InvalidError
	if errors.As(err, &wrong) {
		return cli.Usagef("--%s: %s", wrong.Field, wrong.Problem)
	}
	return err
}

func (m *Main) replay(ctx context.Context, cmd *cobra.Command, flags *replayFlags) error {
	if err := flags.filter.Check(0); err != nil {
		return err
	}
	if err := m.checkTarget(cmd.Flags().Changed, flags); err != nil {
		return err
	}
	if flags.print {
		_, text, err := readSQL(flags.sql)
		if err == nil {
			_, err = m.Out.Write(text)
		}
		return err
	}
	sql, err := projection(flags)
	if err != nil {
		return err
	}
	target, err := m.target(flags, sql)
	if err != nil {
		return err
	}
	if flags.filter.Mask, err = openMask(flags.mask); err != nil {
		return err
	}
	progress := m.replayProgress(target.toOut)
	opts := replay.Options{
		Filter: flags.filter, Follow: flags.follow, Progress: progress.show,
		Logger: slog.New(slog.NewTextHandler(m.Err, &slog.HandlerOptions{ReplaceAttr: withoutTime})),
	}
	if opts.Remote, err = m.remote(flags); err != nil {
		return err
	}
	log, url := replay.RemoteLog, flags.postgres
	var js jetstream.JetStream
	if opts.Remote == nil {
		s, err := m.connect()
		if err != nil {
			return err
		}
		defer s.close()
		if js, log, err = m.replayedLog(ctx, s, flags); err != nil {
			return err
		}
		url = cmp.Or(url, s.server.PostgresURL)
	}
	if target.sink == nil {
		if url == "" {
			return cli.Usagef("--postgres: the database is unknown here; give its URL")
		}
		target.sink = replay.Postgres(url, target.table, flags.reset)
	}
	sum, err := replay.Run(ctx, js, log, target.sink, opts)
	took := progress.end()
	if err != nil {
		return err
	}
	return m.printReplayed(replayed{Status: "replayed", Summary: sum, To: target.name}, target.toOut, took)
}

// replayedLog finds the log, and records a replay in clear.
func (m *Main) replayedLog(ctx context.Context, s *session, flags *replayFlags) (jetstream.JetStream, topology.Log, error) {
	ctx, cancel := context.WithTimeout(ctx, m.global.timeout)
	defer cancel()
	js, log, err := m.log(ctx, s)
	if err == nil && flags.filter.Mask == nil {
		err = audit.Open(js, m.Clock).Append(ctx, audit.By(access.Local(userAtHost()), audit.Export, audit.Events, flags.filter.String()))
	}
	return js, log, err
}

// keyVariable holds a key.
const keyVariable = "SCRIP_KEY"

// remote is where a key reads events; nil without a key.
func (m *Main) remote(flags *replayFlags) (*replay.Remote, error) {
	env := m.Env
	if flags.keyFile != "" {
		env = func(name string) (string, bool) {
			if name == keyVariable {
				return "", false
			}
			return flags.keyFile, true
		}
	}
	key, err := datadir.Variable(env, keyVariable)
	if key == "" && err == nil && flags.http == "" {
		return nil, nil
	}
	if err == nil {
		_, _, err = access.ParseKey(key)
	}
	if err != nil {
		return nil, cli.Usagef("--key-file: %w", err)
	}
	if flags.http != "" {
		return &replay.Remote{URL: strings.TrimSuffix(flags.http, "/"), Key: key, Client: http.DefaultClient}, nil
	}
	server, err := datadir.Locate("", m.global.data)
	server.HTTPURL = natsx.WithoutUser(server.HTTPURL)
	return remoteOf(server, key), err
}

// remoteOf is HTTP of a server on this machine.
func remoteOf(server datadir.Descriptor, key string) *replay.Remote {
	return &replay.Remote{URL: server.HTTPURL, Key: key, Client: server.HTTPClient()}
}

// withoutTime removes the time from log lines, which a user reads as they are written.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// replayed is a replay's result in JSON.
type replayed struct {
	Status string `json:"status"`
	replay.Summary
	To string `json:"to,omitempty"`
}

// printReplayed prints the summary on standard output, unless that has the events.
func (m *Main) printReplayed(r replayed, toOut bool, took time.Duration) error {
	if toOut {
		if r.Unreadable > 0 {
			fmt.Fprintf(m.Err, "%d lines were skipped: this version cannot read them\n", r.Unreadable)
		}
		return nil
	}
	if m.global.output == outputJSON {
		return cli.JSON(m.Out, r)
	}
	rows := [][2]string{{r.Status, ""}, {"events", fmt.Sprint(r.Events)}, {"messages read", fmt.Sprint(r.Messages)}, {"to", r.To},
		{"took", took.Round(time.Millisecond).String()}}
	if r.Unreadable > 0 {
		rows = append(rows, [2]string{"skipped", fmt.Sprintf("%d lines that this version cannot read", r.Unreadable)})
	}
	if r.Foreign > 0 {
		rows = append(rows, [2]string{"ignored", fmt.Sprintf("%d foreign messages, which scrip did not write", r.Foreign)})
	}
	return cli.Fields(m.Out, rows)
}

// filterFlags adds the flags that select events.
func (m *Main) filterFlags(cmd *cobra.Command, filter *replay.Filter) {
	f := cmd.Flags()
	f.Var(&cli.Value{Kind: "NAME", Parse: func(s string) error {
		filter.Campaigns = append(filter.Campaigns, s)
		return nil
	}}, "campaign", "events of this campaign")
	f.Var(&cli.Value{Kind: "TYPE", Parse: func(s string) error {
		t, err := replay.ParseType(s)
		filter.Types = append(filter.Types, t)
		return err
	}}, "type", "events of this type, such as coupon.claimed")
	f.Var(&cli.Value{Kind: "ID", Parse: func(s string) error {
		if s == "" {
			return errors.New("must be the id of a customer; omit the flag for all")
		}
		filter.Customer = s
		return nil
	}}, "customer", "events about this customer")
	f.Var(m.moment(&filter.Since), "since", "events at or after this time")
	f.Var(m.moment(&filter.Until), "until", "events before this time")
	f.Var(&cli.Value{Kind: "N", Parse: func(s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return errors.New("must be the number of a lane, from 0")
		}
		filter.Lanes = append(filter.Lanes, int(n))
		return nil
	}}, "lane", "events of this lane")
	f.Var(position(&filter.From), "from", "events of a lane from this message on; without --lane, of no other lane")
	f.Var(position(&filter.To), "to", "events of a lane up to this message; without --lane, of no other lane")
}

// moment is a time.
func (m *Main) moment(into *wire.Instant) *cli.Value {
	return &cli.Value{Kind: moment.kind, Parse: func(s string) (err error) {
		*into, err = cli.ParseTime(s, m.Clock.Now())
		return err
	}}
}

// position is LANE:SEQ, one per lane.
func position(into *map[int]uint64) *cli.Value {
	return &cli.Value{Kind: "LANE:SEQ", Parse: func(s string) error {
		lane, sequence, _ := strings.Cut(s, ":")
		n, err1 := strconv.ParseUint(lane, 10, 16)
		seq, err2 := strconv.ParseUint(sequence, 10, 63)
		if err1 != nil || err2 != nil || seq == 0 {
			return errors.New("must be a lane from 0 and a message sequence from 1, such as 0:1000")
		}
		if *into == nil {
			*into = map[int]uint64{}
		}
		if _, twice := (*into)[int(n)]; twice {
			return errors.New("can be given once per lane; keep one")
		}
		(*into)[int(n)] = seq
		return nil
	}}
}
