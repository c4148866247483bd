package replay

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// target is a sink and what it has written: a text of all columns but raw for each event.
type target struct {
	name      string
	sink      func(reset bool) Sink
	rows      func() []string
	continues bool
}

func targets(t *testing.T) []target {
	dir, db := t.TempDir(), projtest.URL(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	return []target{
		{"file of NDJSON", func(bool) Sink { return File(in("a"), NDJSON) }, func() []string { return jsonRows(t, in("a")) }, false},
		{"file of CSV", func(bool) Sink { return File(in("b"), CSV) }, func() []string { return csvRows(t, in("b")) }, false},
		{"file of Parquet", func(bool) Sink { return File(in("c"), Parquet) }, func() []string { return parquetRows(t, in("c")) }, false},
		{"named file of NDJSON", func(reset bool) Sink { return named(t, in("d"), NDJSON, reset) }, func() []string { return jsonRows(t, in("d")) }, true},
		{"named file of CSV", func(reset bool) Sink { return named(t, in("e"), CSV, reset) }, func() []string { return csvRows(t, in("e")) }, true},
		{"table", func(reset bool) Sink { return Postgres(db, Rows("all_events"), reset) }, func() []string { return rowsOf(t, db, "all_events") }, true},
	}
}

// Each sink has every event of the log, column by column. What continues adds what is new, run after run, whatever the size of
// batches, and so does what follows.
func TestSinks(t *testing.T) {
	r := newRig(t)
	r.work()
	all := targets(t)
	for i := range 3 {
		for _, to := range all {
			r.run(to.sink(false), Options{Limits: fill.Limits{Lines: i}})
			equalRows(t, to.name, to.rows(), r.naiveRows())
		}
		r.claimOnce(i + 2)
	}
	for i, to := range all {
		if !to.continues {
			continue
		}
		f := r.follow(to.sink(false), Options{})
		for n := range 2 {
			r.claimOnce(10*i + n)
			want := len(r.naiveRows())
			f.until(func() bool { return len(to.rows()) == want })
		}
		f.stop()
		equalRows(t, to.name+", followed", to.rows(), r.naiveRows())
		r.run(to.sink(true), Options{})
		equalRows(t, to.name+", started again", to.rows(), r.naiveRows())
	}
}

// equalRows compares whatever the order: following mixes lanes.
func equalRows(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// naiveRows are those of the log, by way of encoding/json.
func (r *rig) naiveRows() (rows []string) {
	r.T.Helper()
	for lane := range lanes {
		positions, lines := r.stored(lane)
		for i, line := range lines {
			event := decoded(r.T, line)
			if event["type"] == "command.rejected" {
				event["command_sequence"], event["command_line"] = event["sequence"], event["line"]
			}
			event["lane"], event["sequence"], event["line"] = lane, positions[i].Sequence, positions[i].Line
			rows = append(rows, fieldsOf(event))
		}
	}
	return rows
}

func decoded(t testing.TB, line string) (event map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	streamtest.Must(t, d.Decode(&event))
	return event
}

func fieldsOf(event map[string]any) string {
	var fields []string
	for _, c := range Columns[:len(Columns)-1] {
		text := ""
		if v, there := event[c.Name]; there {
			text = fmt.Sprint(v)
		}
		fields = append(fields, text)
	}
	return strings.Join(fields, "|")
}

func jsonRows(t *testing.T, path string) (rows []string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	streamtest.Must(t, err)
	for line := range strings.Lines(string(raw)) {
		if strings.HasSuffix(line, "\n") { // else it is being written
			rows = append(rows, fieldsOf(decoded(t, line)))
		}
	}
	return rows
}

// csvRows also checks that the heading names the columns and that raw is the line.
func csvRows(t *testing.T, path string) (rows []string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	streamtest.Must(t, err)
	text := string(raw)
	all, err := csv.NewReader(strings.NewReader(text[:strings.LastIndex(text, "\n")+1])).ReadAll()
	streamtest.Must(t, err)
	for i, row := range all {
		for c, column := range Columns {
			if i == 0 && row[c] != column.Name {
				t.Fatalf("heading %q", row)
			}
		}
		last := len(Columns) - 1
		if i > 0 && decoded(t, row[last])["type"] != row[slices.IndexFunc(Columns, func(c Column) bool { return c.Name == "type" })] {
			t.Errorf("raw is not the line: %q", row)
		}
		if i > 0 {
			rows = append(rows, strings.Join(row[:last], "|"))
		}
	}
	return rows
}
