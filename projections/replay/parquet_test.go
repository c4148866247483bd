package replay

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// parquetRows reads a file by column names and Parquet's own types, through nothing of parquet.go.
func parquetRows(t *testing.T, path string) (list []string) {
	t.Helper()
	file, rows := readParquet(t, path)
	for i, f := range file.Schema().Fields() {
		want := "STRING"
		switch f.Name() {
		case "lane", "line":
			want = "INT(32,true)"
		case "at", "expires_at", "due_at", "through":
			want = "TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)"
		case "sequence", "n", "from_n", "through_n", "redeemed_count", "r", "fired", "dropped", "count", "command_sequence", "command_line":
			want = "INT(64,true)"
		}
		if got := f.Type().String(); got != want || f.Name() != Columns[i].Name {
			t.Errorf("column %d: %s is %s, want %s of type %s", i, f.Name(), got, Columns[i].Name, want)
		}
	}
	for _, row := range rows {
		var fields []string
		for c, column := range Columns[:len(Columns)-1] {
			text := row[c].String()
			if row[c].IsNull() {
				text = ""
			} else if column.SQL[:4] == "time" {
				text = wire.Instant(row[c].Int64()).String()
			}
			fields = append(fields, text)
		}
		list = append(list, strings.Join(fields, "|"))
	}
	return list
}

// Row groups are written as they fill, so memory does not grow with the file.
func TestParquetRowGroups(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.parquet")
	f, err := os.Create(path)
	streamtest.Must(t, err)
	p := newParquet(f)
	event := Event{Event: wire.Event{Type: wire.CouponClaimed, Campaign: "c", At: 1}, Raw: []byte(strings.Repeat("x", groupBytes/999))}
	before := int64(0)
	for i := range 3000 {
		event.Position = Position{0, uint64(i + 1), 1}
		streamtest.Must(t, p.encode([]Event{event}))
		if info, err := f.Stat(); err == nil && i%1000 == 999 {
			if info.Size() <= before {
				t.Errorf("after %d rows the file has %d bytes, no more than before", i+1, before)
			}
			before = info.Size()
		}
	}
	streamtest.Must(t, p.close())
	streamtest.Must(t, f.Close())
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
	streamtest.Must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	info, err := f.Stat()
	streamtest.Must(t, err)
	file, err := parquet.OpenFile(f, info.Size())
	streamtest.Must(t, err)
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
