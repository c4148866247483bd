package replay

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// The file is read by column names and Parquet's own types, through nothing of parquet.go.
func TestParquet(t *testing.T) {
	r := newRig(t)
	r.work()
	path := filepath.Join(t.TempDir(), "out.parquet")
	r.run(File(path, Parquet), Options{})
	file, rows := readParquet(t, path)
	var names []string
	for _, f := range file.Schema().Fields() {
		names = append(names, f.Name())
		want := "STRING"
		switch f.Name() {
		case "lane", "line":
			want = "INT(32,true)"
		case "at", "expires_at", "due_at", "through":
			want = "TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)"
		case "sequence", "n", "redeemed_count", "r", "fired", "dropped", "count", "command_sequence", "command_line":
			want = "INT(64,true)"
		}
		if got := f.Type().String(); got != want {
			t.Errorf("%s is %s, want %s", f.Name(), got, want)
		}
	}
	for i, c := range Columns {
		if i >= len(names) || names[i] != c.Name {
			t.Fatalf("columns %v, want %s in place %d", names, c.Name, i)
		}
	}
	// The rows are those of CSV, which has a test of its own.
	i := 0
	var got []csvRow
	r.run(csvSink(&got), Options{})
	for _, want := range got {
		for c, column := range Columns {
			text := rows[i][c].String()
			if rows[i][c].IsNull() {
				text = ""
			} else if column.SQL[:4] == "time" {
				text = wire.Instant(rows[i][c].Int64()).String()
			}
			if text != want.fields[c] {
				t.Errorf("row %d: %s is %q, want %q", i, column.Name, text, want.fields[c])
			}
		}
		i++
	}
	if len(rows) != i || i == 0 {
		t.Errorf("%d rows, want %d", len(rows), i)
	}
}

// Row groups are written as they fill, so memory does not grow with the file.
func TestParquetRowGroups(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	p := newParquet(f)
	event := Event{Event: wire.Event{Type: wire.CouponClaimed, Campaign: "c", At: 1}, Raw: []byte(strings.Repeat("x", groupBytes/999))}
	before := int64(0)
	for i := range 3000 {
		event.Position = Position{0, uint64(i + 1), 1}
		if err := p.encode([]Event{event}); err != nil {
			t.Fatal(err)
		}
		if info, err := f.Stat(); err == nil && i%1000 == 999 {
			if info.Size() <= before {
				t.Errorf("after %d rows the file has %d bytes, no more than before", i+1, before)
			}
			before = info.Size()
		}
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	file, rows := readParquet(t, path)
	if n := len(file.RowGroups()); n < 3 || len(rows) != 3000 {
		t.Errorf("%d groups, %d rows", n, len(rows))
	}
	for i, row := range rows {
		if row[1].Int64() != int64(i+1) {
			t.Fatalf("row %d has sequence %s", i, row[1])
		}
	}
}

func readParquet(t *testing.T, path string) (*parquet.File, []parquet.Row) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	var all []parquet.Row
	for _, group := range file.RowGroups() {
		rows := group.Rows()
		buf := make([]parquet.Row, 64)
		for {
			n, err := rows.ReadRows(buf)
			for _, row := range buf[:n] {
				all = append(all, row.Clone())
			}
			if err != nil {
				if n == 0 || fmt.Sprint(err) == "EOF" {
					break
				}
				t.Fatal(err)
			}
		}
		_ = rows.Close()
	}
	return file, all
}
