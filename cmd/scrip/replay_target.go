package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/replay"
)

// replayTarget is where a replay writes.
type replayTarget struct {
	name    string // for the summary
	toOut   bool   // events go to standard output
	printed bool   // --print: the command is done, without a replay
	sink    func(*session) (replay.Sink, error)
}

// replayTarget derives the target from the flags, and refuses combinations without a meaning. It writes nothing.
func (m *Main) replayTarget(cmd *cobra.Command, flags *replayFlags) (replayTarget, error) {
	given := cmd.Flags().Changed
	needs := func(flag string, there bool) error {
		if there {
			return nil
		}
		return cli.Usagef("--%s: only valid with --sql FILE; give that too, or omit this flag", flag)
	}
	switch {
	case flags.print && !given("sql"):
		return replayTarget{}, needs("print", false)
	case given("sql") && given("format"), given("sql") && given("out"):
		return replayTarget{}, cli.Usagef("--sql: the output is tables; omit --format and --out")
	case flags.reset && !given("sql") && !given("name"):
		return replayTarget{}, cli.Usagef("--reset: without --name or --sql there is no output to delete; omit it")
	case flags.follow && (flags.filter.Until != 0 || len(flags.filter.To) > 0):
		return replayTarget{}, cli.Usagef("--follow: it has no end; omit --until and --to, or --follow")
	case flags.excel && (given("sql") || flags.format != string(replay.CSV)):
		return replayTarget{}, cli.Usagef("--csv: only valid with --format csv; give that too, or omit this flag")
	case given("sql"):
		return m.sqlTarget(flags)
	case flags.format == formatPostgres:
		return m.rowsTarget(flags, given("out"))
	}
	return m.fileTarget(flags)
}

// sqlTarget is a SQL projection.
func (m *Main) sqlTarget(flags *replayFlags) (t replayTarget, err error) {
	var text []byte
	path := flags.sql
	if name, is := strings.CutPrefix(path, replay.ExamplePrefix); is {
		text, err = replay.ExampleSQL(name)
		path = name + ".sql"
	} else if text, err = os.ReadFile(path); errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("there is no file %s", path)
	}
	if err != nil {
		return t, cli.Usagef("--sql: %w", err)
	}
	if flags.print {
		_, err := m.Out.Write(text)
		return replayTarget{printed: true}, err
	}
	file, err := replay.ParseSQL(path, text)
	if err != nil {
		return t, cli.Usagef("--sql: %w", err)
	}
	if flags.name != "" {
		file.Name = flags.name
	}
	switch {
	case len(flags.filter.Types) == 0:
		flags.filter.Types = file.Types
	case len(file.Types) > 0:
		both := slices.DeleteFunc(flags.filter.Types, func(t wire.EventType) bool { return !slices.Contains(file.Types, t) })
		if len(both) == 0 {
			return t, cli.Usagef("--type: %s selects none of these; omit the flag", path)
		}
		flags.filter.Types = both
	}
	return m.databaseTarget(flags, file.Definition())
}

// rowsTarget is a table of events.
func (m *Main) rowsTarget(flags *replayFlags, out bool) (replayTarget, error) {
	switch {
	case out:
		return replayTarget{}, cli.Usagef("--out: events go to table events of the schema --name; omit it")
	case flags.name == "":
		return replayTarget{}, cli.Usagef("--name: missing; give the schema for table events")
	}
	return m.databaseTarget(flags, replay.Rows(flags.name))
}

func (m *Main) databaseTarget(flags *replayFlags, d replay.Definition) (replayTarget, error) {
	if flags.postgres != "" {
		if _, err := pgx.ParseConfig(flags.postgres); err != nil {
			return replayTarget{}, cli.Usagef("--postgres: must be a URL such as postgres://user@host/database")
		}
	}
	return replayTarget{name: "schema " + d.Name, sink: func(s *session) (replay.Sink, error) {
		url := flags.postgres
		if url == "" {
			url = s.server.PostgresURL
		}
		if url == "" {
			return nil, cli.Usagef("--postgres: the database is unknown here; give its URL")
		}
		return replay.Postgres(url, d, flags.reset), nil
	}}, nil
}

// fileTarget is a file or standard output.
func (m *Main) fileTarget(flags *replayFlags) (replayTarget, error) {
	format := replay.Format(flags.format)
	if flags.excel {
		format = replay.ExcelCSV
	}
	toOut := flags.out == standardOut
	switch {
	case flags.out == "":
		return replayTarget{}, cli.Usagef("--out: must be a file, or - for standard output")
	case toOut && flags.name != "":
		return replayTarget{}, cli.Usagef("--name: a replay to standard output has no checkpoint; give --out FILE, or omit --name")
	case format == replay.Parquet && flags.follow:
		return replayTarget{}, cli.Usagef("--follow: a Parquet file cannot be appended to; give --format ndjson or csv")
	case !toOut && flags.follow && flags.name == "":
		return replayTarget{}, cli.Usagef("--follow: into a file it needs --name NAME, to continue after it was stopped")
	case format == replay.Parquet && toOut && m.terminalOut():
		return replayTarget{}, cli.Usagef("--out: Parquet cannot be shown on a terminal; give a file")
	}
	t := replayTarget{name: flags.out, toOut: toOut}
	var sink replay.Sink
	var err error
	switch {
	case toOut:
		sink = replay.Stream(m.Out, format)
	case flags.name != "":
		sink, err = replay.NamedFile(flags.out, flags.name, format, flags.reset)
	default:
		sink = replay.File(flags.out, format)
	}
	t.sink = func(*session) (replay.Sink, error) { return sink, nil }
	return t, err
}

// terminalOut is true if standard output is a terminal.
func (m *Main) terminalOut() bool {
	f, is := m.Out.(*os.File)
	return is && cli.IsTerminal(f)
}

// replayProgress shows a replay's progress on a terminal: messages read and time left by the bar, events and events a
// second in its text.
type replayProgress struct {
	m         *Main
	bar       *bar
	started   time.Time
	following bool
}

func (m *Main) replayProgress(toOut bool) *replayProgress {
	p := &replayProgress{m: m, bar: &bar{}, started: time.Now()}
	if !toOut || !m.terminalOut() { // else the bar would be between the events
		p.bar = m.bar("replaying", 0, false)
	}
	return p
}

// show is called after each batch.
func (p *replayProgress) show(now replay.Progress) {
	if now.Following {
		if !p.following {
			p.following = true
			p.bar.clear()
			if p.m.TerminalErr {
				_, _ = io.WriteString(p.m.Err, fmt.Sprintf("%d events replayed in %s; following\n", now.Events, time.Since(p.started).Round(time.Millisecond)))
			}
		}
		return
	}
	if !p.bar.shown() || now.Total == 0 {
		return
	}
	rate := float64(now.Events) / time.Since(p.started).Seconds()
	p.bar.set(fmt.Sprintf("replaying: %d events, %.0f events/s;", now.Events, rate), int64(now.Messages), int64(now.Total))
}

func (p *replayProgress) end() time.Duration {
	if !p.following {
		p.bar.end()
	}
	return time.Since(p.started)
}
