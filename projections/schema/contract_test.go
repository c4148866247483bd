package schema

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// types of columns that outside queries may meet.
var types = []uint32{pgtype.TextOID, pgtype.Int8OID, pgtype.TimestamptzOID, pgtype.Float8OID}

// TestTheContractNamesColumns: everything that the SQL part of the page names can be selected, and has one of few types.
func TestTheContractNamesColumns(t *testing.T) {
	raw, err := os.ReadFile("../../domain/CONTRACT.md")
	streamtest.Must(t, err)
	_, text, _ := strings.Cut(string(raw), "\n## SQL\n")
	text, _, _ = strings.Cut(text, "\n## ")
	p := pool(t)
	ensured(t, p)
	// The first code span of a cell; what follows it explains.
	rows := regexp.MustCompile("(?m)^\\| `([a-z_.()]+)` \\| `([a-z_ ]+)`").FindAllStringSubmatch(text, -1)
	if len(rows) < 12 {
		t.Errorf("CONTRACT.md has %d relations and functions", len(rows))
	}
	for _, row := range rows {
		name := row[1]
		if !strings.Contains(name, ".") {
			name = "scrip." + name
		}
		rows, err := p.Query(t.Context(), "SELECT "+strings.ReplaceAll(row[2], " ", ", ")+" FROM "+name+" LIMIT 0")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, column := range rows.FieldDescriptions() {
			if !slices.Contains(types, column.DataTypeOID) {
				t.Errorf("%s.%s has type %d", name, column.Name, column.DataTypeOID)
			}
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
