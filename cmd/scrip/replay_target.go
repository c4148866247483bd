package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/replay"
)

// replayTarget is where a replay writes: a sink, or tables, whose database is known once the server is found.
type replayTarget struct {
	name  string // for the summary
	toOut bool   // events go to standard output
	sink  replay.Sink
	table replay.Definition
}

// checkTarget refuses combinations of flags without a meaning.
func (m *Main) checkTarget(given func(flag string) bool, flags *replayFlags) error {
	sql, tables := given("sql"), flags.format == formatPostgres
	file, parquet, toOut := !sql && !tables, flags.format == string(replay.Parquet), flags.out == standardOut
	parts := flags.partition != ""
	for _, rule := range []struct {
		broken bool
		why    string
	}{
		{flags.print && !sql, "--print: only valid with --sql FILE; give that too, or omit this flag"},
		{sql && (given("format") || given("out")), "--sql: the output is tables; omit --format and --out"},
		{flags.reset && !sql && !given("name"), "--reset: without --name or --sql there is no output to delete; omit it"},
		{flags.follow && (flags.filter.Until != 0 || len(flags.filter.To) > 0), "--follow: it has no end; omit --until and --to, or --follow"},
		{tables && given("out"), "--out: events go to table events of the schema --name; omit it"},
		{tables && flags.name == "", "--name: missing; give the schema for table events"},
		{file && flags.out == "", "--out: must be a file, or - for standard output"},
		{file && toOut && flags.name != "", "--name: a replay to standard output has no checkpoint; give --out FILE, or omit --name"},
		{parts && (!file || !parquet), "--partition: only valid with --format parquet; give that too, or omit this flag"},
		{parts && toOut, "--partition: files need a directory; give --out DIR"},
		{parts && flags.name != "", "--name: a data set has its checkpoint in its directory; omit it, or --partition"},
		{file && parquet && flags.follow && !parts, "--follow: a Parquet file cannot be appended to; give --partition day, or --format ndjson or csv"},
		{file && !toOut && flags.follow && flags.name == "" && !parts, "--follow: into a file it needs --name NAME, to continue after it was stopped"},
		{file && parquet && toOut && m.terminalOut(), "--out: Parquet cannot be shown on a terminal; give a file"},
	} {
		if rule.broken {
			return cli.Usagef("%s", rule.why)
		}
	}
	if _, err := pgx.ParseConfig(flags.postgres); err != nil && !file {
		return cli.Usagef("--postgres: must be a URL such as postgres://user@host/database")
	}
	return nil
}

// target derives the target from the flags. It writes nothing.
func (m *Main) target(flags *replayFlags, projection *replay.SQLFile) (t replayTarget, err error) {
	format := replay.Format(flags.format)
	t = replayTarget{name: flags.out, toOut: flags.out == standardOut}
	switch {
	case projection != nil:
		t = replayTarget{table: projection.Definition()}
	case flags.format == formatPostgres:
		t = replayTarget{table: replay.Rows(flags.name)}
	case flags.partition != "":
		t.sink = replay.Partitions(flags.out)
	case t.toOut:
		t.sink = replay.Stream(m.Out, format)
	case flags.name != "":
		t.sink, err = replay.NamedFile(flags.out, flags.name, format, flags.reset)
	default:
		t.sink = replay.File(flags.out, format)
	}
	if t.sink == nil {
		t.name = "schema " + t.table.Name
	}
	return t, err
}

// readSQL reads the file of a SQL projection, or an example.
func readSQL(path string) (name string, text []byte, err error) {
	if example, is := strings.CutPrefix(path, replay.ExamplePrefix); is {
		path = example + ".sql"
		text, err = replay.ExampleSQL(example)
	} else if text, err = os.ReadFile(path); errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("there is no file %s", path)
	}
	if err != nil {
		err = cli.Usagef("--sql: %w", err)
	}
	return path, text, err
}

// projection reads the projection of --sql, and limits the replay to what it folds; nil without that flag.
func projection(flags *replayFlags) (*replay.SQLFile, error) {
	if flags.sql == "" {
		return nil, nil
	}
	path, text, err := readSQL(flags.sql)
	if err != nil {
		return nil, err
	}
	file, err := replay.ParseSQL(path, text)
	if err != nil {
		return nil, cli.Usagef("--sql: %w", err)
	}
	file.Name = cmp.Or(flags.name, file.Name)
	switch {
	case len(flags.filter.Types) == 0:
		flags.filter.Types = file.Types
	case len(file.Types) > 0:
		both := slices.DeleteFunc(flags.filter.Types, func(t wire.EventType) bool { return !slices.Contains(file.Types, t) })
		if len(both) == 0 {
			return nil, cli.Usagef("--type: %s selects none of these; omit the flag", path)
		}
		flags.filter.Types = both
	}
	return file, nil
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
